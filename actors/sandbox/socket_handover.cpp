#include "actors/sandbox/socket_handover.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <charconv>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "isolation/boundary/framing.hpp"
#include "isolation/boundary/socket_passing.hpp"

namespace openshell::sandbox {
namespace {

using boundary::LineKind;

std::string ticket_of(std::uint64_t open) { return fmt::format("{:036}", open); }

std::optional<std::uint64_t> open_of(std::string_view ticket) {
  std::uint64_t open = 0;
  const auto [end, error] = std::from_chars(ticket.data(), ticket.data() + ticket.size(), open);
  return error == std::errc{} && end == ticket.data() + ticket.size() ? std::optional{open} : std::nullopt;
}

}  // namespace

struct SocketHandover::Line {
  explicit Line(isolation::FileDescriptor given) : fd{std::move(given)} {}
  const isolation::FileDescriptor fd;
  std::mutex sending;
  std::unordered_set<std::uint64_t> announced;  // and undecided; under the mutex of its owner

  absl::Status send(LineKind kind, std::string_view ticket, std::string_view payload, int socket = -1) {
    const std::lock_guard lock{sending};
    auto status = boundary::send_line(fd.get(), kind, ticket, payload, socket);
    if (absl::IsUnavailable(status)) ::shutdown(fd.get(), SHUT_RDWR);  // it may have taken half of it; its thread sees that
    return status;
  }
};

SocketHandover::SocketHandover() : SocketHandover{[](std::function<void()> work) { std::thread{std::move(work)}.detach(); }} {}

void SocketHandover::adopt(isolation::FileDescriptor connection) {
  ::fcntl(connection.get(), F_SETFL, ::fcntl(connection.get(), F_GETFL) & ~O_NONBLOCK);  // its thread waits in the read
  boundary::widen_line(connection.get());
  auto line = std::make_shared<Line>(std::move(connection));
  std::shared_ptr<Line> before;
  {
    const std::lock_guard lock{mutex_};
    before = std::exchange(line_, line);
  }
  if (before) {
    ::shutdown(before->fd.get(), SHUT_RDWR);
    broke(before);
  }
  try {
    start_([self = shared_from_this(), line] { self->serve(line); });
  } catch (const std::system_error& error) {
    // Nobody would read what is decided: without the line every open has to be asked over a call.
    spdlog::error("the line to the supervisor is closed, it gets no thread: {}", error.what());
    ::shutdown(line->fd.get(), SHUT_RDWR);
    broke(line);
  }
}

void SocketHandover::serve(const std::shared_ptr<Line>& line) {
  boundary::LineDecoder decoder;
  absl::Status status;
  while (status.ok()) {
    status = boundary::receive_line(line->fd.get(), decoder);
    while (status.ok()) {
      auto message = decoder.next();
      if (!message.ok()) status = message.status();
      if (!message.ok() || !*message) break;
      if ((*message)->kind != LineKind::decision) status = absl::InvalidArgumentError("the supervisor sends decisions only");
      if (status.ok()) decided(line, (*message)->ticket, (*message)->payload);
    }
  }
  ::shutdown(line->fd.get(), SHUT_RDWR);
  broke(line);
}

void SocketHandover::decided(const std::shared_ptr<Line>& line, const std::string& ticket, const std::string& payload) {
  const auto open = open_of(ticket);
  if (!open) return;
  {
    const std::lock_guard lock{mutex_};
    if (line->announced.erase(*open) == 0) return;  // over already
  }
  boundary::ProcessFrameDecoder frames;
  const bool good = frames.append(payload).ok();
  const auto frame = good ? frames.next() : std::nullopt;
  auto decision = boundary::OpenDecision::mediation_unavailable;
  if (frame && frame->channel == boundary::Channel::tcp_decision) {
    if (const auto decoded = boundary::decode_open_decision(frame->payload); decoded.ok()) decision = *decoded;
  }
  if (decision != boundary::OpenDecision::relay_handover) {
    gate_.deny(*open, decision);
    line->send(LineKind::over, ticket, {}).IgnoreError();
    return;
  }
  const auto socket = gate_.allow(*open);
  const auto sent =
      socket.ok() ? line->send(LineKind::socket, ticket, {}, socket->get()) : line->send(LineKind::over, ticket, "open is over");
  if (sent.ok() || !socket.ok()) return;
  const linger now{1, 0};  // the workload sees a broken connection and not an end
  ::setsockopt(socket->get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

/// What was announced and not decided is refused: nobody is left to decide it.
void SocketHandover::broke(const std::shared_ptr<Line>& line) {
  std::unordered_set<std::uint64_t> left;
  {
    const std::lock_guard lock{mutex_};
    if (line_ == line) line_ = nullptr;
    left.swap(line->announced);
  }
  for (const auto open : left) gate_.deny(open, boundary::OpenDecision::mediation_unavailable);
}

absl::Status SocketHandover::pass(std::string_view ticket, int socket) {
  std::shared_ptr<Line> line;
  {
    const std::lock_guard lock{mutex_};
    line = line_;
  }
  if (!line) return absl::UnavailableError("there is no line to the supervisor");
  return line->send(LineKind::socket, ticket, {}, socket);
}

bool SocketHandover::announce(std::uint64_t open, const boundary::NetworkConnected& what) {
  std::shared_ptr<Line> line;
  {
    const std::lock_guard lock{mutex_};
    if (!line_ || !gate_.allow || boundary::line_is_busy(line_->fd.get())) return false;
    line = line_;
    line->announced.insert(open);
  }
  const auto ticket = ticket_of(open);
  if (line->send(LineKind::open, ticket, boundary::encode_response(ticket, what)).ok()) return true;
  const std::lock_guard lock{mutex_};
  // Where the line broke meanwhile the open was refused with the others; else a call may carry it.
  return line->announced.erase(open) == 0;
}

bool SocketHandover::over(std::uint64_t open) {
  std::shared_ptr<Line> line;
  {
    const std::lock_guard lock{mutex_};
    if (!line_ || line_->announced.erase(open) == 0) return false;
    line = line_;
  }
  line->send(LineKind::over, ticket_of(open), "open is over").IgnoreError();
  return true;
}

}  // namespace openshell::sandbox
