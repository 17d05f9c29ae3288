#include "data/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace tessera::test {

Server::Server(std::string file, Behaviour behaviour)
    : file_(std::move(file)), behaviour_(std::move(behaviour)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 8) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    std::abort();
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

Server::~Server() {
  stop_ = true;
  thread_.join();
  ::close(listener_);
}

std::string Server::url(const std::string& path) const {
  return "http://127.0.0.1:" + std::to_string(port_) + path;
}

void Server::serve() {
  while (!stop_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (::poll(&waiting, 1, 20) <= 0) continue;
    const int connection = ::accept(listener_, nullptr, nullptr);
    if (connection < 0) continue;
    answer(connection);
    ::close(connection);
  }
}

void Server::answer(int connection) {
  std::string request;
  char buffer[4096];
  while (request.find("\r\n\r\n") == request.npos) {
    const ssize_t got = ::recv(connection, buffer, sizeof(buffer), 0);
    if (got <= 0) return;
    request.append(buffer, static_cast<std::size_t>(got));
  }
  const auto send_all = [&](const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t put = ::send(connection, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (put <= 0) return;
      at += static_cast<std::size_t>(put);
    }
  };
  std::string line = request.substr(0, request.find("\r\n"));
  std::size_t from = 0;
  if (const auto at = request.find("Range: bytes="); at != request.npos) {
    from = std::strtoull(request.c_str() + at + 13, nullptr, 10);
    line += " from " + std::to_string(from);
  }
  requests_.push_back(line);
  const std::string close = "Connection: close\r\n";
  if (!behaviour_.redirect.empty() && line.starts_with("GET " + behaviour_.redirect + " "))
    return send_all("HTTP/1.1 302 Found\r\nLocation: /file.tar.gz\r\nContent-Length: 0\r\n" +
                    close + "\r\n");
  if (behaviour_.status != 200)
    return send_all("HTTP/1.1 " + std::to_string(behaviour_.status) +
                    " No\r\nContent-Length: 2\r\n" + close + "\r\nno");
  if (!behaviour_.ranges) from = 0;
  if (from > 0 && from >= file_.size())
    return send_all("HTTP/1.1 416 Range\r\nContent-Range: bytes */" + std::to_string(file_.size()) +
                    "\r\nContent-Length: 0\r\n" + close + "\r\n");
  std::string body = file_.substr(from);
  send_all(std::string("HTTP/1.1 ") + (from ? "206 Partial\r\n" : "200 OK\r\n") +
           "Content-Length: " + std::to_string(body.size()) + "\r\n" +
           (from
                ? "Content-Range: bytes " + std::to_string(from) + "-" +
                      std::to_string(file_.size() - 1) + "/" + std::to_string(file_.size()) + "\r\n"
                : "") +
           close + "\r\n");
  if (behaviour_.cut_after && answers_++ < behaviour_.cut_times)
    body.resize(std::min(body.size(), behaviour_.cut_after));
  sent_ += body.size();  // before the last byte leaves: whoever received it may ask at once
  send_all(body);
}

}  // namespace tessera::test
