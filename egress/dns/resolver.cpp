#include "egress/dns/resolver.hpp"

#include <sys/random.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "egress/http/head.hpp"

namespace openshell::egress::dns {
namespace {

using boost::system::error_code;

asio::ip::address address_of(const IpAddress& address) {
  if (address.is_v4()) return asio::ip::address_v4{address.v4_value()};
  return asio::ip::address_v6{address.bytes()};
}

std::uint16_t random_id() {
  std::uint16_t id = 0;
  while (getrandom(&id, sizeof id, 0) != sizeof id) {
  }
  return id;
}

absl::Status io_error(const error_code& error) {
  return error == asio::error::operation_aborted ? absl::DeadlineExceededError("name server did not answer in time")
                                                 : absl::UnavailableError(error.message());
}

/// Closes a socket when the time is up; the operation that waits on it then ends.
template <class Socket>
class Deadline {
 public:
  Deadline(asio::io_context& io, const std::shared_ptr<Socket>& socket) : timer_{io} {
    timer_.expires_after(Resolver::kStepTimeout);
    timer_.async_wait([watched = std::weak_ptr<Socket>{socket}](const error_code& error) {
      const auto still = watched.lock();
      error_code ignored;
      if (!error && still) still->close(ignored);
    });
  }

 private:
  asio::steady_timer timer_;
};

Resolved failed(Resolved::Outcome outcome) {
  Resolved out;
  out.outcome = outcome;
  return out;
}

}  // namespace

absl::StatusOr<std::vector<NameServer>> parse_name_servers(const std::vector<std::string>& texts) {
  std::vector<NameServer> out;
  if (texts.size() > kMaxNameServers) return absl::InvalidArgumentError(fmt::format("at most {} resolvers may be given", kMaxNameServers));
  for (const auto& text : texts) {
    const auto authority = http::parse_authority(text);
    const auto address = authority.ok() ? IpAddress::parse(authority->host) : absl::StatusOr<IpAddress>{authority.status()};
    if (!address.ok() || !authority->port) return absl::InvalidArgumentError(fmt::format("resolver '{}' is not ADDRESS:PORT", text));
    out.push_back({*address, *authority->port});
  }
  if (!out.empty()) return out;
  std::ifstream file{"/etc/resolv.conf"};
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string keyword;
    std::string value;
    words >> keyword >> value;
    const auto address = IpAddress::parse(value);
    if (keyword == "nameserver" && address.ok()) return std::vector<NameServer>{{*address, Port{53}}};
  }
  return absl::FailedPreconditionError("no literal nameserver is configured in supervisor /etc/resolv.conf");
}

Task<absl::StatusOr<std::string>> Resolver::over_udp(NameServer server, std::string message) {
  using Udp = asio::ip::udp;
  const auto socket = std::make_shared<Udp::socket>(*io_);
  error_code error;
  const Udp::endpoint remote{address_of(server.address), server.port.value};
  socket->open(remote.protocol(), error);
  if (!error) socket->connect(remote, error);  // so that only this server's packets arrive
  if (error) co_return io_error(error);
  const Deadline<Udp::socket> deadline{*io_, socket};
  co_await socket->async_send(asio::buffer(message), asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return io_error(error);
  std::string out(kMaxMessageBytes + 1, '\0');
  const auto count = co_await socket->async_receive(asio::buffer(out), asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return io_error(error);
  out.resize(count);
  co_return out;
}

Task<absl::StatusOr<std::string>> Resolver::over_tcp(NameServer server, std::string message) {
  using Tcp = asio::ip::tcp;
  const auto socket = std::make_shared<Tcp::socket>(*io_);
  error_code error;
  const Deadline<Tcp::socket> deadline{*io_, socket};
  co_await socket->async_connect({address_of(server.address), server.port.value}, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return io_error(error);
  std::string framed;
  framed.push_back(static_cast<char>(message.size() >> 8));
  framed.push_back(static_cast<char>(message.size() & 0xff));
  framed += message;
  co_await asio::async_write(*socket, asio::buffer(framed), asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return io_error(error);
  std::array<unsigned char, 2> length{};
  co_await asio::async_read(*socket, asio::buffer(length), asio::redirect_error(asio::use_awaitable, error));
  const std::size_t size = std::size_t{length[0]} << 8 | length[1];
  if (error || size > kMaxMessageBytes) co_return error ? io_error(error) : absl::InvalidArgumentError("DNS reply is too long");
  std::string out(size, '\0');
  co_await asio::async_read(*socket, asio::buffer(out), asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return io_error(error);
  co_return out;
}

Task<absl::StatusOr<Reply>> Resolver::ask(NameServer server, std::string name, std::uint16_t type) {
  const auto id = random_id();
  auto question = build_question(id, name, type);
  if (!question.ok()) co_return question.status();
  ++questions_;
  auto message = co_await over_udp(server, *question);
  if (!message.ok()) co_return message.status();
  auto reply = parse_reply(*message, id, name, type);
  if (!reply.ok() || !reply->truncated) co_return reply;
  message = co_await over_tcp(server, *question);
  if (!message.ok()) co_return message.status();
  co_return parse_reply(*message, id, name, type);
}

Task<Resolved> Resolver::resolve(std::string name, std::uint16_t type) {
  using Outcome = Resolved::Outcome;
  Resolved out;
  auto ttl = std::chrono::seconds::max();
  int hops = 0;
  std::set<std::string> seen{name};
  std::size_t server = 0;
  Outcome last = Outcome::kIoFailed;
  while (server < servers_.size()) {
    auto reply = co_await ask(servers_[server], name, type);
    if (!reply.ok()) {
      last = absl::IsDeadlineExceeded(reply.status())  ? Outcome::kTimeout
             : absl::IsInvalidArgument(reply.status()) ? Outcome::kMalformed
                                                       : Outcome::kIoFailed;
      ++server;
      continue;
    }
    if (reply->rcode == Rcode::kNxDomain) co_return failed(Outcome::kNoSuchName);
    if (reply->rcode != Rcode::kNoError || reply->truncated) {
      last = Outcome::kErrorResponse;
      ++server;
      continue;
    }
    if (reply->cnames > 0 || !reply->addresses.empty()) ttl = std::min(ttl, std::chrono::seconds{reply->ttl_seconds});
    if (!reply->addresses.empty()) {
      out.outcome = Outcome::kAddresses;
      out.addresses = std::move(reply->addresses);
      out.ttl = ttl;
      co_return out;
    }
    if (reply->cnames == 0) co_return failed(Outcome::kNoData);
    hops += reply->cnames;
    if (hops > kMaxCnames || !seen.insert(reply->canonical_name).second) co_return failed(Outcome::kCnameLimit);
    name = reply->canonical_name;
  }
  co_return failed(last);
}

}  // namespace openshell::egress::dns
