#include "api/sandboxes/exec_session.hpp"

#include <algorithm>
#include <limits>

#include "exec.pb.h"
#include "observability/text.hpp"
#include "openshell.pb.h"

namespace openshell::api {
namespace {

namespace wire = openshell::internal::exec::v1;
constexpr const char* kNoStatus = "exec relay closed before the command reported an exit status";
constexpr std::int32_t kExitTimedOut = 124;
constexpr std::int32_t kExitStdinStalled = 74;

std::string frame(const wire::ToSupervisor& message) {
  const auto body = message.SerializeAsString();
  const auto size = static_cast<std::uint32_t>(body.size());
  std::string out{static_cast<char>(size >> 24U), static_cast<char>(size >> 16U), static_cast<char>(size >> 8U), static_cast<char>(size)};
  return out += body;
}

std::uint32_t length_of(const std::string& bytes) {
  std::uint32_t size = 0;
  for (int i = 0; i < 4; ++i) size = size << 8U | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  return size;
}

absl::Status failure_status(const wire::Failure& failure, bool started) {
  switch (failure.code()) {
    case wire::Failure::INVALID:
      return absl::InternalError(failure.message());
    case wire::Failure::NOT_READY:
      return absl::FailedPreconditionError("sandbox is not ready");
    case wire::Failure::EXHAUSTED:
      return absl::ResourceExhaustedError(failure.message());
    case wire::Failure::DELIVERY:
      return absl::UnavailableError(cat("exec output could not be delivered: ", failure.message()));
    default:
      return started ? absl::UnavailableError(kNoStatus) : absl::UnavailableError(cat("supervisor relay failed: ", failure.message()));
  }
}

}  // namespace

ExecSession::ExecSession(std::shared_ptr<gateway::RelayEnd> relay, Caller caller) : relay_{std::move(relay)}, caller_{std::move(caller)} {}

void ExecSession::send_message(const wire::ToSupervisor& message) {
  relay_->write(frame(message), [] {});
}

void ExecSession::start(const openshell::v1::ExecSandboxRequest& request, const std::string& command, const std::string& exec_id,
                        bool interactive) {
  std::lock_guard lock{mutex_};
  wire::ToSupervisor message;
  auto& start = *message.mutable_start();
  start.set_exec_id(exec_id);
  start.set_command(command);
  start.set_no_login_shell(request.no_login_shell());
  start.set_tty(request.tty());
  tty_ = request.tty();
  if (tty_) {
    start.set_term("xterm-256color");
    const bool both = !interactive && request.cols() == 0 && request.rows() == 0;
    start.set_cols(both || request.cols() == 0 ? 80 : request.cols());
    start.set_rows(both || request.rows() == 0 ? 24 : request.rows());
  }
  send_message(message);
  const std::weak_ptr<ExecSession> weak = weak_from_this();
  relay_->on_abort([weak](const absl::Status& why) {
    if (auto self = weak.lock()) {
      std::lock_guard inner{self->mutex_};
      self->end(self->started_ ? absl::UnavailableError(kNoStatus)
                               : absl::UnavailableError(cat("supervisor relay failed: ", to_std(why.message()))));
    }
  });
  caller_.after(kExecStarted, [weak] {
    if (auto self = weak.lock()) {
      std::lock_guard inner{self->mutex_};
      if (!self->started_) self->end(absl::UnavailableError(kNoStatus));
    }
  });
  if (request.has_execution_timeout()) {
    const auto& timeout = request.execution_timeout();
    const auto seconds = std::min(timeout.seconds(), kExecLongestTimeout.count());  // as milliseconds a longer one overflows the clock
    const std::chrono::milliseconds limit{seconds * 1000 + timeout.nanos() / 1'000'000};
    if (limit.count() > 0) {
      caller_.after(limit, [weak] {
        if (auto self = weak.lock()) self->timed_out();
      });
    }
  }
  if (!interactive) {
    pending_stdin_ = request.stdin();
    stdin_done_ = true;
    push_stdin();
  }
  read_relay();
}

void ExecSession::timed_out() {
  std::lock_guard lock{mutex_};
  if (over_ || killed_) return;
  killed_ = true;
  if (caller_.timed_out) caller_.timed_out();
  wire::ToSupervisor message;
  message.mutable_signal()->set_kind(wire::Signal::KILL);
  send_message(message);
  // Its output up to here is still delivered; the exit that the supervisor reports is replaced, and not waited for longer than a kill may
  // take.
  caller_.after(kExecKilled, [weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      std::lock_guard inner{self->mutex_};
      self->exited(kExitTimedOut);
    }
  });
}

void ExecSession::push_stdin() {
  if (over_) return;
  while (!pending_stdin_.empty() && credit_ > 0) {
    const auto size = std::min({pending_stdin_.size(), credit_, kMaxExecChunk});
    wire::ToSupervisor message;
    message.set_stdin(pending_stdin_.substr(0, size));
    pending_stdin_.erase(0, size);
    credit_ -= size;
    send_message(message);
  }
  if (pending_stdin_.empty() && stdin_done_ && !stdin_end_sent_) {
    stdin_end_sent_ = true;
    wire::ToSupervisor message;
    message.mutable_stdin_end();
    send_message(message);
  }
  if (more_ && pending_stdin_.size() + (kExecWindow - credit_) < kMaxPendingStdin) std::exchange(more_, nullptr)();
  if (more_ && !stalled_check_) watch_stall();
}

void ExecSession::watch_stall() {
  stalled_check_ = true;
  caller_.after(kExecStdinStall, [weak = weak_from_this(), before = taken_] {
    auto self = weak.lock();
    if (!self) return;
    std::lock_guard lock{self->mutex_};
    self->stalled_check_ = false;
    if (self->over_ || !self->more_) return;
    if (self->taken_ != before) return self->watch_stall();
    wire::ToSupervisor kill;
    kill.mutable_signal()->set_kind(wire::Signal::KILL);
    self->send_message(kill);
    self->exited(kExitStdinStalled);
  });
}

void ExecSession::stdin_bytes(std::string bytes, std::function<void()> more) {
  std::lock_guard lock{mutex_};
  if (over_) return;
  pending_stdin_ += bytes;
  more_ = std::move(more);
  push_stdin();
}

void ExecSession::stdin_end() {
  std::lock_guard lock{mutex_};
  stdin_done_ = true;
  push_stdin();
}

void ExecSession::resize(std::uint32_t cols, std::uint32_t rows) {
  std::lock_guard lock{mutex_};
  if (over_ || !tty_ || cols == 0 || rows == 0) return;
  wire::ToSupervisor message;
  message.mutable_resize()->set_cols(std::min(cols, 65'535U));
  message.mutable_resize()->set_rows(std::min(rows, 65'535U));
  send_message(message);
}

void ExecSession::cancel() {
  std::lock_guard lock{mutex_};
  if (over_) return;
  over_ = true;
  more_ = nullptr;
  relay_->abort(absl::CancelledError("the caller of the exec is gone"));
}

void ExecSession::read_relay() {
  relay_->read(
      [self = shared_from_this()](std::string bytes) {
        std::lock_guard lock{self->mutex_};
        if (self->over_) return;
        if (bytes.empty()) return self->relay_ended();
        self->input_ += bytes;
        self->handle_messages();
      },
      [](const absl::Status&) {});  // on_abort tells
}

void ExecSession::relay_ended() { end(absl::UnavailableError(kNoStatus)); }

void ExecSession::handle_messages() {
  while (!over_ && !emitting_) {
    if (input_.size() < 4) break;
    const auto size = length_of(input_);
    wire::ToGateway message;
    if (size == 0 || size > kMaxExecMessage) return end(absl::InternalError("exec protocol error"));
    if (input_.size() < 4 + size) break;
    if (!message.ParseFromArray(input_.data() + 4, static_cast<int>(size))) return end(absl::InternalError("exec protocol error"));
    input_.erase(0, 4 + size);
    if (!handle(message)) return;
  }
  if (!over_ && !emitting_) read_relay();
}

bool ExecSession::handle(const wire::ToGateway& message) {
  openshell::v1::ExecSandboxEvent event;
  switch (message.message_case()) {
    case wire::ToGateway::kStarted:
      if (started_) break;
      started_ = true;
      return true;
    case wire::ToGateway::kStdout:
    case wire::ToGateway::kStderr: {
      const bool out = message.message_case() == wire::ToGateway::kStdout;
      const auto& bytes = out ? message.stdout() : message.stderr();
      if (bytes.empty() || bytes.size() > kMaxExecChunk) break;
      out ? event.mutable_stdout()->set_data(bytes) : event.mutable_stderr()->set_data(bytes);
      emit(event);
      return !emitting_;
    }
    case wire::ToGateway::kStdinCredit: {
      const auto bytes = message.stdin_credit().bytes();
      if (bytes > kExecWindow - credit_) break;
      credit_ += bytes;
      taken_ += bytes;
      push_stdin();
      return true;
    }
    case wire::ToGateway::kExit:
      exited(killed_ ? kExitTimedOut : message.exit().code());
      return false;
    case wire::ToGateway::kFailure:
      end(failure_status(message.failure(), started_));
      return false;
    default:
      break;
  }
  end(absl::InternalError("exec protocol error"));
  return false;
}

/// The next message is looked at when the caller's transport took this one: a slow caller slows the process.
void ExecSession::emit(const openshell::v1::ExecSandboxEvent& event) {
  emitting_ = true;
  caller_.send(event, [self = shared_from_this()](bool written) {
    if (!written) return self->cancel();
    std::lock_guard lock{self->mutex_};
    self->emitting_ = false;
    if (!self->over_) self->handle_messages();
  });
}

void ExecSession::exited(std::int64_t code) {
  if (over_) return;
  over_ = true;
  more_ = nullptr;
  openshell::v1::ExecSandboxEvent event;
  event.mutable_exit()->set_exit_code(
      static_cast<std::int32_t>(std::clamp<std::int64_t>(code, 0, std::numeric_limits<std::int32_t>::max())));
  relay_->end_output();
  caller_.send(event, [self = shared_from_this()](bool written) {
    if (written) self->caller_.finish(absl::OkStatus());
  });
}

void ExecSession::end(absl::Status status) {
  if (over_) return;
  over_ = true;
  more_ = nullptr;
  relay_->abort(absl::UnavailableError(std::string{to_std(status.message())}));
  caller_.finish(std::move(status));
}

}  // namespace openshell::api
