// This tests what libcurl is told about redirections: a download that began encrypted stays so.
// Convention: this program's own curl_easy_setopt stands before the library's, writes the option
// down and hands it on; a server with a certificate that libcurl trusts would need one in the
// system.
#include <curl/curl.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdarg>

#include "data/fetch.h"
#include "data/fixtures.h"
#include "files/scratch.h"

namespace tessera::data::redirect_test {
std::string allowed;  // CURLOPT_REDIR_PROTOCOLS_STR, as it was last set
}

#undef curl_easy_setopt
extern "C" CURLcode curl_easy_setopt(CURL* handle, CURLoption option, ...) {
  using Function = CURLcode (*)(CURL*, CURLoption, ...);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "curl_easy_setopt"));
  va_list arguments;
  va_start(arguments, option);
  void* const value = va_arg(arguments, void*);  // a long, a size or a pointer: eight bytes each
  va_end(arguments);
  if (option == CURLOPT_REDIR_PROTOCOLS_STR)
    tessera::data::redirect_test::allowed = static_cast<const char*>(value);
  return real(handle, option, value);
}

namespace tessera::data::redirect_test {
namespace {

TEST(Fetch, LibcurlIsToldWhereARedirectionMayLead) {
  const test::Scratch scratch;
  for (const auto& [url, protocols] : {std::pair{"https://127.0.0.1:1/x", "https"},
                                       std::pair{"http://127.0.0.1:1/x", "http,https"}}) {
    Fetch what;
    what.url = url;
    what.file = scratch / "got";
    what.sha256 = std::string(64, '0');
    what.max_bytes = 1000;
    what.attempts = 1;
    what.pause_s = 0.01;
    allowed.clear();
    EXPECT_EQ(test::error_of([&] { fetch(what); }).kind, ErrorKind::data);
    EXPECT_EQ(allowed, protocols) << url;
  }
}

}  // namespace
}  // namespace tessera::data::redirect_test
