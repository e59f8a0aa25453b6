#include "programs/supervisor/process_session.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "isolation/boundary/framing.hpp"
#include "programs/supervisor/serial_queue.hpp"
#include "programs/supervisor/terminal_resizer.hpp"

namespace openshell::supervisor {
namespace {

constexpr std::uint32_t kLargestSide = 65'535;
constexpr std::chrono::seconds kAdmission{30};  // an exec request that arrives later is refused

boundary::ExecSpec spec_of(const ProcessRequest& request) {
  boundary::ExecSpec spec;
  if (request.runtime_helper) {
    spec.runtime_helper = request.runtime_helper;
    return spec;
  }
  spec.pty = request.terminal.has_value();
  if (request.terminal) spec.env = terminal_environment(request.terminal->term, request.terminal->size);
  spec.shell = boundary::ShellSpec{request.command, request.login};
  return spec;
}

}  // namespace

absl::Status exec_refusal(const boundary::Error& error) {
  const auto says = [&error](std::string_view word) { return error.message.find(word) != std::string::npos; };
  switch (error.kind) {
    case boundary::ErrorKind::invalid:
    case boundary::ErrorKind::denied:
      return absl::InvalidArgumentError(error.message);
    case boundary::ErrorKind::terminated:
      return absl::UnavailableError(error.message);
    case boundary::ErrorKind::unavailable:
      return says("exhausted") || says("limit") ? absl::ResourceExhaustedError(error.message) : absl::UnavailableError(error.message);
    case boundary::ErrorKind::process:
      break;
  }
  return says("shell") || says("No such file") ? absl::NotFoundError(error.message) : absl::PermissionDeniedError(error.message);
}

TerminalSize usable_size(std::uint32_t columns, std::uint32_t rows) {
  if (columns == 0 || rows == 0) return {};
  return {std::min(columns, kLargestSide), std::min(rows, kLargestSide)};
}

std::vector<std::pair<std::string, std::string>> terminal_environment(const std::string& term, TerminalSize size) {
  return {{"TERM", term}, {"COLUMNS", std::to_string(size.columns)}, {"LINES", std::to_string(size.rows)}};
}

/// Outlives the session as long as something is under way. Touched by `serial` only, but for what is const.
struct ProcessSession::State : std::enable_shared_from_this<State> {
  State(std::shared_ptr<BoundaryClient> client, boundary::ExecStarted answer, std::shared_ptr<egress::ByteStream> bytes)
      : boundary{std::move(client)}, process{std::move(answer)}, stream{std::move(bytes)} {}

  void post(std::function<void()> work) {
    serial.post([self = shared_from_this(), work = std::move(work)] { work(); });
  }

  void read(ReadDone done) {
    if (!reader) {
      reader = std::move(done);
      return next();
    }
    done(absl::FailedPreconditionError("a read is outstanding"));
  }

  /// The next frame that is there, else more bytes.
  void next() {
    if (!reader) return;
    if (!broken.ok()) return answer(broken);
    if (exited) return answer(absl::OutOfRangeError("the process has ended"));
    while (auto frame = decoder.next()) {
      switch (frame->channel) {
        case boundary::Channel::stdout_data:
        case boundary::Channel::stderr_data: {
          if (frame->payload.empty()) continue;
          const bool out = frame->channel == boundary::Channel::stdout_data;
          return answer(ProcessOutput{out ? ProcessOutput::Kind::standard_output : ProcessOutput::Kind::standard_error,
                                      std::move(frame->payload), 0});
        }
        case boundary::Channel::exit_status: {
          auto status = boundary::decode_exit_status(frame->payload);
          if (!status.ok()) return fail(absl::UnavailableError("the boundary's exit status is malformed"));
          exited = true;
          return answer(ProcessOutput{ProcessOutput::Kind::exit, {}, std::clamp(status->code(), 0, 255)});
        }
        default:
          return fail(absl::UnavailableError("the boundary sent an unexpected channel"));
      }
    }
    if (decoder.dead()) return fail(absl::UnavailableError("the boundary sent a malformed process frame"));
    stream->read([self = shared_from_this()](absl::StatusOr<std::string> bytes) {
      auto held = std::make_shared<absl::StatusOr<std::string>>(std::move(bytes));
      self->post([self, held] { self->received(std::move(*held)); });
    });
  }

  void received(absl::StatusOr<std::string> bytes) {
    if (!bytes.ok()) {
      if (!abandoned) boundary->check_link([](bool) {});
      return fail(absl::UnavailableError("the process stream of the boundary was lost"));
    }
    if (bytes->empty()) return fail(absl::UnavailableError("the boundary ended the process stream without an exit"));
    if (auto status = decoder.append(*bytes); !status.ok()) return fail(absl::UnavailableError(std::string{status.message()}));
    next();
  }

  void fail(absl::Status status) {
    broken = std::move(status);
    next();
  }

  void answer(absl::StatusOr<ProcessOutput> output) {
    auto done = std::exchange(reader, nullptr);
    done(std::move(output));
  }

  struct Input {
    std::string frame;
    WriteDone done;
  };
  void feed() {
    if (writing || input.empty()) return;
    writing = true;
    stream->write(std::move(input.front().frame), [self = shared_from_this()](const absl::Status& status) {
      self->post([self, ok = status.ok()] {
        self->writing = false;
        auto done = std::move(self->input.front().done);
        self->input.pop_front();
        if (done) done(ok || self->exited ? absl::OkStatus() : absl::UnavailableError("the process stream of the boundary was lost"));
        self->feed();
      });
    });
  }

  /// Asks for the end of the whole tree, once.
  void end() {
    if (!std::exchange(ending, true)) call(boundary::Terminate{process.process_id});
  }

  void call(boundary::Request request) {
    if (!exited) boundary->call(std::move(request), kCallDeadline, [](const absl::StatusOr<Opened>&) {});
  }

  const std::shared_ptr<BoundaryClient> boundary;
  const boundary::ExecStarted process;
  const std::shared_ptr<egress::ByteStream> stream;
  const std::shared_ptr<TerminalResizer> terminal{std::make_shared<TerminalResizer>(boundary, process.process_id)};
  SerialQueue serial;
  boundary::ProcessFrameDecoder decoder;
  ReadDone reader;
  std::deque<Input> input;  // the front is being written
  absl::Status broken;
  bool writing = false;
  bool input_closed = false;
  bool exited = false;
  bool ending = false;
  bool abandoned = false;
};

void ProcessSession::open(std::shared_ptr<BoundaryClient> boundary, ProcessRequest request, Ready done) {
  const auto expires = std::chrono::system_clock::now() + kAdmission;
  boundary::Exec exec{static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(expires.time_since_epoch()).count()),
                      spec_of(request)};
  auto& client = *boundary;
  const auto size = request.terminal ? std::optional{request.terminal->size} : std::nullopt;
  client.open_once(make_uuid(), std::move(exec), std::nullopt,
                   [boundary = std::move(boundary), size, done = std::move(done)](absl::StatusOr<Opened> opened) mutable {
                     if (!opened.ok()) {
                       boundary->check_link([](bool) {});
                       return done(absl::UnavailableError("the boundary connection was lost"));
                     }
                     if (const auto* error = std::get_if<boundary::Error>(&opened->response)) return done(exec_refusal(*error));
                     const auto* started = std::get_if<boundary::ExecStarted>(&opened->response);
                     if (!started) return done(absl::UnavailableError("the boundary answered something else"));
                     auto state = std::make_shared<State>(boundary, *started, std::move(opened->stream));
                     std::shared_ptr<ProcessSession> session{new ProcessSession{std::move(state)}};
                     if (size) session->resize(size->columns, size->rows);
                     done(std::move(session));
                   });
}

ProcessSession::ProcessSession(std::shared_ptr<State> state) : state_{std::move(state)} {}

ProcessSession::~ProcessSession() {
  state_->post([state = state_] {
    state->abandoned = true;
    state->end();
    state->stream->reset();
  });
}

bool ProcessSession::has_terminal() const { return state_->process.pty; }

void ProcessSession::read(ReadDone done) {
  auto held = std::make_shared<ReadDone>(std::move(done));
  state_->post([state = state_, held] { state->read(std::move(*held)); });
}

void ProcessSession::write(std::string bytes, WriteDone done) {
  auto held = std::make_shared<State::Input>();
  held->frame = boundary::encode_process_frame(boundary::Channel::stdin_data, bytes);
  held->done = std::move(done);
  state_->post([state = state_, held] {
    if (state->exited || state->input_closed) return held->done(absl::OkStatus());
    state->input.push_back(std::move(*held));
    state->feed();
  });
}

void ProcessSession::close_input() {
  if (has_terminal()) return;
  state_->post([state = state_] {
    if (std::exchange(state->input_closed, true) || state->exited) return;
    state->input.push_back({boundary::encode_process_frame(boundary::Channel::stdin_closed, {}), nullptr});
    state->feed();
  });
}

void ProcessSession::resize(std::uint32_t columns, std::uint32_t rows) {
  if (!has_terminal()) return;
  const auto size = usable_size(columns, rows);
  state_->post([state = state_, size] {
    if (!state->exited) state->terminal->resize(size);
  });
}

void ProcessSession::signal(boundary::ProcessSignal signal) {
  state_->post([state = state_, signal] { state->call(boundary::ExecSignal{state->process.process_id, signal}); });
}

void ProcessSession::terminate() {
  state_->post([state = state_] { state->end(); });
}

}  // namespace openshell::supervisor
