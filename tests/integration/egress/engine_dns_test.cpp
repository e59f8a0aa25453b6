// Policy DNS in front of a real name server: what is asked of the world, and what is not.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/integration/egress/support.hpp"

namespace openshell::egress::test {
namespace {

using testing::HasSubstr;

/// Answers A questions over UDP: `nx.*` does not exist, `empty.*` has no address, `fail.*` is refused, everything else is 10.4.0.9.
class NameServer {
 public:
  NameServer() {
    fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    socklen_t size = sizeof address;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread{[this] { loop(); }};
  }
  ~NameServer() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  [[nodiscard]] std::string address() const { return fmt::format("127.0.0.1:{}", port_); }
  [[nodiscard]] std::vector<std::string> asked() const {
    const std::lock_guard lock{mutex_};
    return asked_;
  }

 private:
  void loop() {
    while (true) {
      char bytes[512];
      sockaddr_in from{};
      socklen_t size = sizeof from;
      const auto count = recvfrom(fd_, bytes, sizeof bytes, 0, reinterpret_cast<sockaddr*>(&from), &size);
      if (count <= 0) return;
      const auto parsed = egress::dns::parse_query(std::string_view{bytes, static_cast<std::size_t>(count)});
      if (!parsed.query) continue;
      const auto& name = parsed.query->name;
      {
        const std::lock_guard lock{mutex_};
        asked_.push_back(name);
      }
      using egress::dns::Rcode;
      std::string answer;
      if (name.starts_with("nx.")) {
        answer = build_answer(*parsed.query, Rcode::kNxDomain);
      } else if (name.starts_with("empty.")) {
        answer = build_answer(*parsed.query, Rcode::kNoError);
      } else if (name.starts_with("fail.")) {
        answer = build_answer(*parsed.query, Rcode::kRefused);
      } else {
        answer = build_answer(*parsed.query, Rcode::kNoError, *IpAddress::parse("10.4.0.9"), 300);
      }
      sendto(fd_, answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
    }
  }

  int fd_ = -1;
  std::uint16_t port_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::vector<std::string> asked_;
};

std::string rule(const std::string& name, const std::string& host, const std::string& more = {}) {
  return fmt::format(
      "  {}:\n    endpoints:\n      - host: \"{}\"\n        port: 5432\n        protocol: tcp\n{}    binaries: [/usr/bin/curl]\n", name,
      host, more);
}

// NET-47, NET-60, NET-56
TEST(EngineDns, NET_OnlyNamedHostsAreLookedUp) {
  NameServer server;
  World world{[&](EngineOptions& options) { options.resolvers = {server.address()}; }};
  world.publish(rule("db", "db.acme.test") + rule("wild", "*.wild.test") + rule("nx", "nx.acme.test") + rule("empty", "empty.acme.test") +
                rule("fail", "fail.acme.test") + rule("ips", "ips.acme.test", "        allowed_ips: [\"10.9.0.0/16\"]\n"));
  EXPECT_THAT(world.resolve("db.acme.test"), HasSubstr("198.18."));  // declared by name: a private address is fine
  EXPECT_EQ(world.resolve("a.wild.test"), "rcode 2");                // a wildcard never opens a private address
  EXPECT_EQ(world.resolve("ips.acme.test"), "rcode 2");              // outside allowed_ips
  EXPECT_EQ(world.resolve("nx.acme.test"), "rcode 3");
  EXPECT_EQ(world.resolve("empty.acme.test"), "no data");
  EXPECT_EQ(world.resolve("fail.acme.test"), "rcode 2");
  const auto asked = server.asked().size();
  EXPECT_EQ(asked, 6U);
  EXPECT_THAT(world.resolve("secret-data.attacker.test"), HasSubstr("198.18."));
  EXPECT_EQ(world.resolve("db.acme.test", 28), "no data");
  EXPECT_EQ(world.resolve("db.acme.test", 16), "no data");
  EXPECT_EQ(server.asked().size(), asked);
}

TEST(EngineDns, NET_TheNextServerIsAskedWhereOneFails) {
  NameServer second;
  NameServer first;
  World world{[&](EngineOptions& options) { options.resolvers = {first.address(), second.address()}; }};
  world.publish(rule("fail", "fail.acme.test") + rule("db", "db.acme.test"));
  EXPECT_EQ(world.resolve("fail.acme.test"), "rcode 2");
  EXPECT_EQ(first.asked().size(), 1U);
  EXPECT_EQ(second.asked().size(), 1U);
  EXPECT_THAT(world.resolve("db.acme.test"), HasSubstr("198.18."));
  EXPECT_EQ(second.asked().size(), 1U);
}

}  // namespace
}  // namespace openshell::egress::test
