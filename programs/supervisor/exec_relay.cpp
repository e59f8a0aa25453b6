#include "programs/supervisor/exec_relay.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "exec.pb.h"
#include "programs/supervisor/process_session.hpp"
#include "programs/supervisor/terminal_resizer.hpp"

namespace openshell::supervisor {
namespace {

namespace wire = internal::exec::v1;

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kMaxCommandBytes = 262'144;
constexpr std::size_t kMaxTermBytes = 64;
constexpr std::size_t kMaxFailureBytes = 1'024;
constexpr std::chrono::milliseconds kOccupiedPause{100};

std::uint32_t length_at(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

bool canonical_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  bool nil = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (text[i] != '-') return false;
      continue;
    }
    const bool digit = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (!digit) return false;
    nil = nil && text[i] == '0';
  }
  return !nil;
}

/// What a failure says: bounded and without control characters.
std::string printable(std::string_view text) {
  std::string out{text.substr(0, kMaxFailureBytes)};
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return out;
}

std::optional<boundary::ProcessSignal> to_signal(wire::Signal::Kind kind) {
  switch (kind) {
    case wire::Signal::TERM:
      return boundary::ProcessSignal::term;
    case wire::Signal::INT:
      return boundary::ProcessSignal::interrupt;
    case wire::Signal::HUP:
      return boundary::ProcessSignal::hangup;
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::Status ExecFrameDecoder::append(std::string_view bytes) {
  buffer_ += bytes;
  return check_length();
}

absl::Status ExecFrameDecoder::check_length() const {
  if (buffer_.size() < kLengthBytes) return absl::OkStatus();
  const auto length = length_at(buffer_);
  if (length == 0) return absl::InvalidArgumentError("an exec message of length 0");
  if (length > (first_ ? kMaxStartBytes : kMaxMessageBytes)) return absl::InvalidArgumentError("an exec message is too long");
  return absl::OkStatus();
}

std::optional<std::string> ExecFrameDecoder::next() {
  if (buffer_.size() < kLengthBytes || !check_length().ok()) return std::nullopt;
  const auto length = length_at(buffer_);
  if (buffer_.size() < kLengthBytes + length) return std::nullopt;
  std::string message = buffer_.substr(kLengthBytes, length);
  buffer_.erase(0, kLengthBytes + length);
  first_ = false;
  return message;
}

std::string encode_exec_frame(const wire::ToGateway& message) {
  const auto length = static_cast<std::uint32_t>(message.ByteSizeLong());
  std::string frame{static_cast<char>(length >> 24), static_cast<char>(length >> 16), static_cast<char>(length >> 8),
                    static_cast<char>(length)};
  message.AppendToString(&frame);
  return frame;
}

absl::Status check_start(const wire::Start& start) {
  if (!canonical_uuid(start.exec_id())) return absl::InvalidArgumentError("exec_id must be a canonical UUID");
  if (start.command().empty() || start.command().size() > kMaxCommandBytes)
    return absl::InvalidArgumentError("command must hold 1 to 262144 bytes");
  if (start.command().find('\0') != std::string::npos) return absl::InvalidArgumentError("command holds a NUL byte");
  const bool size_ok = start.cols() >= 1 && start.cols() <= 65'535 && start.rows() >= 1 && start.rows() <= 65'535;
  const bool term_ok = !start.term().empty() && start.term().size() <= kMaxTermBytes &&
                       std::all_of(start.term().begin(), start.term().end(), [](unsigned char c) { return std::isgraph(c) != 0; });
  if (start.tty() && (!size_ok || !term_ok)) return absl::InvalidArgumentError("a terminal needs cols, rows and term");
  if (!start.tty() && (start.cols() != 0 || start.rows() != 0 || !start.term().empty()))
    return absl::InvalidArgumentError("cols, rows and term need a terminal");
  return absl::OkStatus();
}

ExecRelay::~ExecRelay() = default;

void ExecRelay::post(std::function<void()> work) {
  serial_.post([self = shared_from_this(), work = std::move(work)] { work(); });
}

void ExecRelay::run() {
  timers_->after(limits_.start_deadline, [weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->post([self] {
        if (!self->started_ && !self->closed_) self->protocol_error("no start message in time");
      });
    }
  });
  post([this] { read_relay(); });
}

void ExecRelay::abort() {
  post([this] { cancel(); });
}

// ---- from the gateway

void ExecRelay::read_relay() {
  if (closed_) return;
  relay_->read([self = shared_from_this()](absl::StatusOr<std::string> bytes) {
    auto held = std::make_shared<absl::StatusOr<std::string>>(std::move(bytes));
    self->post([self, held] { self->from_relay(std::move(*held)); });
  });
}

void ExecRelay::from_relay(absl::StatusOr<std::string> bytes) {
  if (closed_) return;
  if (!bytes.ok()) {
    if (flushed_) return close();
    return cancel();
  }
  if (bytes->empty()) {  // no stdin and no control any more; output and exit still come
    if (flushed_) return close();
    if (!started_) return cancel();
    stdin_end_ = true;
    return feed_stdin();
  }
  if (auto status = in_.append(*bytes); !status.ok()) return protocol_error(std::string{status.message()});
  while (!closed_) {
    auto text = in_.next();
    if (!text) break;
    Message message;
    if (!message.ParseFromString(*text)) return protocol_error("an exec message cannot be parsed");
    take(message);
  }
  if (closed_) return;
  if (auto status = in_.append({}); !status.ok())
    return protocol_error(std::string{status.message()});  // the length behind the last message
  read_relay();
}

void ExecRelay::take(const Message& message) {
  if (!started_) {
    if (!message.has_start()) return protocol_error("the first exec message is not start");
    return start(message.start());
  }
  switch (message.message_case()) {
    case Message::kStdin: {
      if (stdin_end_) return protocol_error("stdin after its end");
      const auto size = message.stdin().size();
      if (size == 0 || size > limits_.output_message) return protocol_error("a stdin message must hold 1 to 32768 bytes");
      stdin_bytes_ += size;
      if (stdin_bytes_ > limits_.stdin_window) return protocol_error("stdin beyond the window");
      stdin_.push_back(message.stdin());
      return feed_stdin();
    }
    case Message::kStdinEnd:
      stdin_end_ = true;
      return feed_stdin();
    case Message::kResize:
      if (!tty_ || message.resize().cols() == 0 || message.resize().rows() == 0 || concluded_) return;
      cols_ = std::min<std::uint32_t>(message.resize().cols(), 65'535);
      rows_ = std::min<std::uint32_t>(message.resize().rows(), 65'535);
      if (running_) terminal_->resize({cols_, rows_});
      return;
    case Message::kSignal:
      if (!running_ || concluded_) {
        if (!running_ && message.signal().kind() == wire::Signal::KILL) cancelled_ = true;  // ended as soon as it is there
        return;
      }
      if (message.signal().kind() == wire::Signal::KILL) {
        boundary_->call(boundary::Terminate{process_id_}, kCallDeadline, [](const absl::StatusOr<Opened>&) {});
      } else if (auto signal = to_signal(message.signal().kind())) {
        boundary_->call(boundary::ExecSignal{process_id_, *signal}, kCallDeadline, [](const absl::StatusOr<Opened>&) {});
      }
      return;
    default:
      return protocol_error("an unknown or second start message");
  }
}

void ExecRelay::start(const wire::Start& start) {
  started_ = true;
  if (auto status = check_start(start); !status.ok()) return finish_with_failure(wire::Failure::INVALID, std::string{status.message()});
  exec_id_ = start.exec_id();
  tty_ = start.tty();
  cols_ = start.cols();
  rows_ = start.rows();
  spdlog::info("exec {} started ({} bytes of command)", exec_id_, start.command().size());
  boundary::ExecSpec spec;
  spec.pty = tty_;
  if (tty_) spec.env = terminal_environment(start.term(), {cols_, rows_});
  spec.shell = boundary::ShellSpec{start.command(), !start.no_login_shell()};
  open(std::move(spec), std::chrono::steady_clock::now() + limits_.occupied_retry);
}

// ---- the boundary's exec

void ExecRelay::open(boundary::ExecSpec spec, std::chrono::steady_clock::time_point give_up) {
  if (closed_) return;
  const auto expires = std::chrono::system_clock::now() + limits_.started_deadline;
  boundary::Exec request{
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(expires.time_since_epoch()).count()), spec};
  boundary_->open_once(exec_id_, std::move(request), std::nullopt,
                       [self = shared_from_this(), spec = std::move(spec), give_up](absl::StatusOr<Opened> result) {
                         auto held = std::make_shared<absl::StatusOr<Opened>>(std::move(result));
                         self->post([self, held, spec, give_up] { self->opened(std::move(*held), spec, give_up); });
                       });
}

void ExecRelay::opened(absl::StatusOr<Opened> result, const boundary::ExecSpec& spec, std::chrono::steady_clock::time_point give_up) {
  if (!result.ok()) {
    boundary_->check_link([](bool) {});
    return finish_with_failure(wire::Failure::UNAVAILABLE, "the boundary connection was lost");
  }
  if (const auto* error = std::get_if<boundary::Error>(&result->response)) {
    const bool occupied = error->kind == boundary::ErrorKind::unavailable && error->message.starts_with("prior exec attachment");
    if (!occupied || std::chrono::steady_clock::now() >= give_up) return refuse(*error);
    timers_->after(kOccupiedPause,
                   [self = shared_from_this(), spec, give_up] { self->post([self, spec, give_up] { self->open(spec, give_up); }); });
    return;
  }
  const auto* exec = std::get_if<boundary::ExecStarted>(&result->response);
  if (!exec) return finish_with_failure(wire::Failure::UNAVAILABLE, "the boundary answered something else");
  process_id_ = exec->process_id;
  process_ = std::move(result->stream);
  running_ = true;
  if (cancelled_ || closed_) {
    boundary_->call(boundary::Terminate{process_id_}, kCallDeadline, [](const absl::StatusOr<Opened>&) {});
    if (closed_) return process_->reset();
  }
  wire::ToGateway message;
  message.mutable_started()->set_process_id(process_id_);
  send(message);
  if (tty_) {
    terminal_ = std::make_shared<TerminalResizer>(boundary_, process_id_);
    terminal_->resize({cols_, rows_});
  }
  read_boundary();
  feed_stdin();
}

void ExecRelay::refuse(const boundary::Error& error) {
  const auto why = exec_refusal(error);
  if (absl::IsInvalidArgument(why)) return finish_with_failure(wire::Failure::INVALID, error.message);
  if (absl::IsUnavailable(why)) return finish_with_failure(wire::Failure::UNAVAILABLE, error.message);
  if (absl::IsResourceExhausted(why)) return finish_with_failure(wire::Failure::EXHAUSTED, error.message);
  // The program could not be started: no failure of the call, but what a shell would say.
  wire::ToGateway message;
  message.set_stderr("openshell: " + printable(error.message) + "\n");
  send(message);
  finish_with_exit(absl::IsNotFound(why) ? 127 : 126);
}

void ExecRelay::feed_stdin() {
  if (closed_ || stdin_writing_) return;
  if (stdin_closed_ || concluded_) return stdin_gone();
  if (!running_) return;
  if (stdin_.empty()) {
    if (!stdin_end_ || tty_) return;
    stdin_closed_ = true;
    stdin_writing_ = true;
    process_->write(boundary::encode_process_frame(boundary::Channel::stdin_closed, {}), [self = shared_from_this()](const absl::Status&) {
      self->post([self] {
        self->stdin_writing_ = false;
        self->feed_stdin();
      });
    });
    return;
  }
  stdin_writing_ = true;
  process_->write(boundary::encode_process_frame(boundary::Channel::stdin_data, stdin_.front()),
                  [self = shared_from_this()](const absl::Status& status) {
                    self->post([self, ok = status.ok()] {
                      self->stdin_writing_ = false;
                      if (self->closed_) return;
                      if (!ok) {
                        self->stdin_closed_ = true;
                        return self->stdin_gone();
                      }
                      const auto size = self->stdin_.front().size();
                      self->stdin_.pop_front();
                      self->stdin_bytes_ -= size;
                      if (!self->concluded_) {
                        wire::ToGateway credit;
                        credit.mutable_stdin_credit()->set_bytes(static_cast<std::uint32_t>(size));
                        self->send(credit);
                      }
                      self->feed_stdin();
                    });
                  });
}

/// The process takes no more: what waits is thrown away with its credit.
void ExecRelay::stdin_gone() {
  std::size_t thrown = 0;
  for (const auto& bytes : stdin_) thrown += bytes.size();
  stdin_.clear();
  stdin_bytes_ -= thrown;
  if (thrown == 0 || concluded_) return;
  wire::ToGateway credit;
  credit.mutable_stdin_credit()->set_bytes(static_cast<std::uint32_t>(thrown));
  send(credit);
}

void ExecRelay::read_boundary() {
  if (closed_ || concluded_ || boundary_reading_ || to_relay_bytes_ >= limits_.output_queued) return;
  boundary_reading_ = true;
  process_->read([self = shared_from_this()](absl::StatusOr<std::string> bytes) {
    auto held = std::make_shared<absl::StatusOr<std::string>>(std::move(bytes));
    self->post([self, held] {
      self->boundary_reading_ = false;
      self->from_boundary(std::move(*held));
    });
  });
}

void ExecRelay::from_boundary(absl::StatusOr<std::string> bytes) {
  if (closed_ || concluded_) return;
  if (!bytes.ok() || bytes->empty()) {
    if (!bytes.ok()) boundary_->check_link([](bool) {});
    return finish_with_failure(wire::Failure::UNAVAILABLE, "the exec stream of the boundary was lost");
  }
  if (auto status = out_.append(*bytes); !status.ok())
    return finish_with_failure(wire::Failure::UNAVAILABLE, std::string{status.message()});
  while (auto frame = out_.next()) {
    switch (frame->channel) {
      case boundary::Channel::stdout_data:
      case boundary::Channel::stderr_data:
        output(frame->channel, frame->payload);
        break;
      case boundary::Channel::stdin_closed:
        stdin_closed_ = true;
        feed_stdin();
        break;
      case boundary::Channel::exit_status: {
        auto status = boundary::decode_exit_status(frame->payload);
        if (!status.ok()) return finish_with_failure(wire::Failure::UNAVAILABLE, "the exit status is malformed");
        return finish_with_exit(status->code());
      }
      default:
        return finish_with_failure(wire::Failure::UNAVAILABLE, "an unexpected frame of the boundary");
    }
  }
  read_boundary();
}

void ExecRelay::output(boundary::Channel channel, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.substr(0, limits_.output_message);
    bytes.remove_prefix(piece.size());
    wire::ToGateway message;
    if (channel == boundary::Channel::stderr_data) {
      message.set_stderr(std::string{piece});
    } else {
      message.set_stdout(std::string{piece});
    }
    send(message);
  }
}

// ---- to the gateway

void ExecRelay::send(const wire::ToGateway& message) {
  if (closed_) return;
  to_relay_.push_back(encode_exec_frame(message));
  to_relay_bytes_ += to_relay_.back().size();
  if (to_relay_.size() == 1) write_relay();
}

void ExecRelay::write_relay() {
  relay_->write(to_relay_.front(), [self = shared_from_this()](const absl::Status& status) {
    self->post([self, ok = status.ok()] {
      if (self->closed_) return;
      if (!ok) return self->cancel();
      self->to_relay_bytes_ -= self->to_relay_.front().size();
      self->to_relay_.pop_front();
      if (!self->to_relay_.empty()) return self->write_relay();
      if (self->concluded_) return self->conclude();
      if (self->running_) self->read_boundary();
    });
  });
}

void ExecRelay::finish_with_exit(int code) {
  if (concluded_ || closed_) return;
  wire::ToGateway message;
  message.mutable_exit()->set_code(code);
  send(message);
  concluded_ = true;
  spdlog::info("exec {} ended with {}", exec_id_, code);
  feed_stdin();
}

void ExecRelay::finish_with_failure(int code, const std::string& text) {
  if (concluded_ || closed_) return;
  wire::ToGateway message;
  message.mutable_failure()->set_code(static_cast<wire::Failure::Code>(code));
  message.mutable_failure()->set_message(printable(text));
  send(message);
  concluded_ = true;
  spdlog::info("exec {} failed: {}", exec_id_, printable(text));
}

/// Everything was written: this direction ends; the gateway then ends the relay.
void ExecRelay::conclude() {
  flushed_ = true;
  relay_->shutdown_write();
  timers_->after(limits_.end_deadline, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->post([self] { self->close(); });
  });
}

void ExecRelay::protocol_error(const std::string& what) {
  spdlog::warn("exec relay {}: protocol error: {}", exec_id_, what);
  cancel();
}

/// The caller is gone: so is the exec, with everything it started.
void ExecRelay::cancel() {
  if (closed_) return;
  if (running_ && !concluded_) {
    spdlog::info("exec {} cancelled", exec_id_);
    boundary_->call(boundary::Terminate{process_id_}, kCallDeadline, [](const absl::StatusOr<Opened>&) {});
  }
  cancelled_ = true;
  close();
}

void ExecRelay::close() {
  if (std::exchange(closed_, true)) return;
  relay_->reset();
  if (process_) process_->reset();
  if (auto ended = std::exchange(ended_, nullptr)) ended();
}

}  // namespace openshell::supervisor
