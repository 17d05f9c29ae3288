// A web server of one file on a free local port, with the faults that a download must survive.
// Convention: one connection at a time; the destructor ends the thread.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace tessera::test {

class Server {
 public:
  struct Behaviour {
    bool ranges = true;         // answers Range with 206
    std::size_t cut_after = 0;  // closes the connection after so many body bytes; 0: never
    int cut_times = 1 << 30;    // only the first so many answers
    int status = 200;           // another: that error, and no file
    std::string redirect = {};  // a path that is answered with a redirection to the file
  };
  Server(std::string file, Behaviour behaviour);
  ~Server();
  std::string url(const std::string& path = "/file.tar.gz") const;
  std::vector<std::string> requests() const {
    return requests_;
  }  // first line and Range; look only while no request is under way
  std::uint64_t sent() const { return sent_; }

 private:
  void serve();
  void answer(int connection);

  std::string file_;
  Behaviour behaviour_;
  std::vector<std::string> requests_;
  std::atomic<std::uint64_t> sent_{0};
  int listener_ = -1, port_ = 0, answers_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tessera::test
