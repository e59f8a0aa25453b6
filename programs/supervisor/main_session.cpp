#include "programs/supervisor/main_session.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "isolation/boundary/framing.hpp"
#include "programs/supervisor/main_log.hpp"
#include "programs/supervisor/serial_queue.hpp"
#include "programs/supervisor/terminal_resizer.hpp"

namespace openshell::supervisor {
namespace {

using Clock = std::chrono::steady_clock;
using ReadDone = MainAttachment::ReadDone;
using WriteDone = MainAttachment::WriteDone;

constexpr std::size_t kLargestRead = 65'536;  // small pieces of one kind are handed out together up to this

}  // namespace

/// Everything is guarded by `mutex_`; what leaves (completions, calls of the boundary) is collected in `Actions` and done without it.
class MainSession::Impl : public std::enable_shared_from_this<Impl> {
 public:
  using Actions = std::vector<std::function<void()>>;

  Impl(std::shared_ptr<BoundaryClient> boundary, std::shared_ptr<TimerThread> timers, bool is_terminal, bool declared, Limits limits)
      : terminal{is_terminal},
        boundary_{std::move(boundary)},
        timers_{std::move(timers)},
        limits_{limits},
        expectation_{declared ? Expectation::declared : Expectation::none},
        log_{limits.retained_bytes} {}

  template <class F>
  auto with(F work) {
    Actions actions;
    if constexpr (std::is_void_v<decltype(work(actions))>) {
      {
        const std::lock_guard lock{mutex_};
        work(actions);
      }
      for (auto& action : actions) action();
    } else {
      auto result = [&] {
        const std::lock_guard lock{mutex_};
        return work(actions);
      }();
      for (auto& action : actions) action();
      return result;
    }
  }

  // ---- main

  void started(std::string process_id) {
    with([&](Actions& actions) {
      process_id_ = std::move(process_id);
      resizer_ = std::make_shared<TerminalResizer>(boundary_, process_id_);
      if (expectation_ == Expectation::declared) {
        holding_for_declared_ = true;
        later(limits_.awaited, [](Impl& self, Actions& more) {
          self.holding_for_declared_ = false;
          self.read_main(more);
        });
      }
      actions.push_back([self = shared_from_this()] { self->attach_main(0); });
    });
  }

  void exited(int code) {
    with([&](Actions& actions) {
      code_ = code;
      // The stream may have ended without an exit before this was known.
      if (lost_before_exit_) finish(actions, code);
    });
  }

  void acknowledged() {
    with([&](Actions& actions) {
      acknowledged_ = true;
      serve_all(actions);
    });
  }

  void drain(std::function<void()> done) {
    with([&](Actions& actions) {
      drained_ = std::move(done);
      later(limits_.awaited, [](Impl& self, Actions& more) {
        if (self.expectation_ == Expectation::declared || self.expectation_ == Expectation::pending)
          self.expectation_ = Expectation::satisfied;
        self.check_drained(more);
        self.later(self.limits_.draining, [](Impl& me, Actions& last) {
          if (me.drained_) last.push_back(std::exchange(me.drained_, nullptr));
        });
      });
      check_drained(actions);
    });
  }

  void close(const std::string& reason) {
    with([&](Actions& actions) {
      if (!closed_.ok()) return;
      closed_ = absl::UnavailableError(reason);
      if (stream_) actions.push_back([stream = std::exchange(stream_, nullptr)] { stream->reset(); });
      serve_all(actions);
      fail_input(actions, closed_);
    });
  }

  // ---- attachments

  absl::StatusOr<std::uint64_t> attach() {
    return with([&](Actions& actions) -> absl::StatusOr<std::uint64_t> {
      if (!closed_.ok()) return absl::FailedPreconditionError(closed_.message());
      if (process_id_.empty()) return absl::FailedPreconditionError("the main process was not started");
      const bool awaited = expectation_ == Expectation::declared || expectation_ == Expectation::pending;
      expectation_ = Expectation::satisfied;
      holding_for_declared_ = false;
      const auto number = ++last_number_;
      auto& follower = followers_[number];
      follower.served = awaited;
      follower.cursor = log_.first();
      follower.behind = log_.bytes();
      follower.last_read = Clock::now();
      read_main(actions);
      return number;
    });
  }

  void detach(std::uint64_t number) {
    with([&](Actions& actions) {
      const auto found = followers_.find(number);
      if (found == followers_.end()) return;
      answer(actions, found->second, absl::CancelledError("the attachment was ended"));
      followers_.erase(found);
      release(actions, number);
      read_main(actions);
      check_drained(actions);
    });
  }

  void read(std::uint64_t number, ReadDone done) {
    with([&](Actions& actions) {
      const auto found = followers_.find(number);
      if (found == followers_.end()) {
        auto held = std::make_shared<ReadDone>(std::move(done));
        return actions.push_back([held] { (*held)(absl::CancelledError("the attachment was ended")); });
      }
      Follower& follower = found->second;
      follower.last_read = Clock::now();
      follower.reader = std::make_shared<ReadDone>(std::move(done));
      serve(actions, follower);
      read_main(actions);
    });
  }

  absl::Status acquire(std::uint64_t number) {
    return with([&](Actions&) -> absl::Status {
      const auto found = followers_.find(number);
      if (found == followers_.end()) return absl::CancelledError("the attachment was ended");
      if (owner_ != 0 && owner_ != number) return absl::FailedPreconditionError("canonical main process already has an input owner");
      owner_ = number;
      found->second.served = true;
      return absl::OkStatus();
    });
  }

  void give_up(std::uint64_t number) {
    with([&](Actions& actions) {
      release(actions, number);
      read_main(actions);
    });
  }

  bool owns(std::uint64_t number) {
    return with([&](Actions&) { return owner_ == number; });
  }

  void write(std::uint64_t number, std::string bytes, WriteDone done) {
    auto held = std::make_shared<WriteDone>(std::move(done));
    with([&](Actions& actions) {
      const auto refuse = [&](absl::Status why) { actions.push_back([held, why = std::move(why)] { (*held)(why); }); };
      if (owner_ != number) return refuse(absl::FailedPreconditionError("the attachment is read-only"));
      if (waiting_) return refuse(absl::FailedPreconditionError("a write is outstanding"));
      if (finished_ || code_ || !closed_.ok()) return refuse(absl::OkStatus());  // nobody reads it any more
      if (input_.size() < limits_.input_chunks) {
        input_.push_back(std::move(bytes));
        refuse(absl::OkStatus());
        return feed(actions);
      }
      waiting_ = Waiting{number, ++waits_, std::move(bytes), held};
      later(limits_.input_wait, [wait = waits_](Impl& self, Actions& more) {
        if (!self.waiting_ || self.waiting_->id != wait) return;
        more.push_back([held = self.waiting_->done] { (*held)(absl::ResourceExhaustedError("canonical stdin buffer is full")); });
        self.waiting_.reset();
      });
    });
  }

  void resize(TerminalSize size) {
    if (!terminal) return;
    auto resizer = with([&](Actions&) { return finished_ ? nullptr : resizer_; });
    if (resizer) resizer->resize(size);
  }

  void signal(boundary::ProcessSignal signal) {
    const auto id = with([&](Actions&) { return finished_ || code_ ? std::string{} : process_id_; });
    if (!id.empty()) boundary_->call(boundary::Signal{id, signal}, kCallDeadline, [](const absl::StatusOr<Opened>&) {});
  }

  const bool terminal;

 private:
  enum class Expectation { none, declared, pending, satisfied };

  struct Follower {
    std::uint64_t cursor = 0;
    std::size_t behind = 0;  // bytes of the log it has not read
    Clock::time_point last_read;
    bool served = false;   // no mere viewer: it is or was the input owner, or was awaited. The process waits for it
    bool overrun = false;  // it stalled: no more is waited for it
    bool told_exit = false;
    std::shared_ptr<ReadDone> reader;
    std::shared_ptr<SerialQueue> answers = std::make_shared<SerialQueue>();  // completions may read again: no recursion
  };
  struct Waiting {
    std::uint64_t number, id;
    std::string bytes;
    std::shared_ptr<WriteDone> done;
  };

  void later(std::chrono::milliseconds delay, std::function<void(Impl&, Actions&)> work) {
    timers_->after(delay, [weak = weak_from_this(), work = std::move(work)] {
      if (auto self = weak.lock()) self->with([&](Actions& actions) { work(*self, actions); });
    });
  }

  // ---- the boundary's stream

  /// Again after a repair: the stream begins with the oldest event that the runtime still holds, and does not say which one that is.
  void reattach_main() {
    boundary_->survey([self = shared_from_this()](absl::StatusOr<boundary::Snapshot> snapshot) {
      if (!snapshot.ok()) return self->close("the boundary is lost");
      std::uint64_t first = 0;
      for (const auto& process : snapshot->processes) {
        if (process.main) first = process.retained_output.first_sequence;
      }
      self->attach_main(first);
    });
  }

  void attach_main(std::uint64_t first_event) {
    std::string id;
    {
      const std::lock_guard lock{mutex_};
      if (finished_ || !closed_.ok()) return;
      id = process_id_;
    }
    boundary_->call(boundary::AttachProcess{id}, std::nullopt, [self = shared_from_this(), first_event](absl::StatusOr<Opened> opened) {
      if (!opened.ok()) return self->close("the boundary is lost");
      if (const auto* error = std::get_if<boundary::Error>(&opened->response)) return self->attach_refused(*error);
      self->with([&](Actions& actions) {
        if (!self->closed_.ok()) return;
        self->stream_ = std::move(opened->stream);
        self->decoder_ = {};
        self->writing_ = self->reading_ = false;
        self->next_event_ = first_event;
        self->read_main(actions);
        self->feed(actions);
      });
    });
  }

  void attach_refused(const boundary::Error& error) {
    if (error.kind != boundary::ErrorKind::unavailable) return close("main cannot be attached: " + error.message);
    later(limits_.reattach_pause, [](Impl& self, Actions& actions) {  // our attachment of the lost connection is still being released
      actions.push_back([me = self.shared_from_this()] { me->reattach_main(); });
    });
  }

  /// The process waits while somebody must not be overrun.
  bool held() {
    const std::size_t mark = limits_.retained_bytes / 2;
    if (holding_for_declared_ && log_.bytes() >= mark) return true;
    bool waits = false;
    for (auto& [number, follower] : followers_) waits = holds_back(follower, mark) || waits;
    return waits;
  }

  bool holds_back(Follower& follower, std::size_t mark) {
    if (!follower.served || follower.overrun || follower.behind < mark) return false;
    const auto idle = Clock::now() - follower.last_read;
    if (idle >= limits_.stalled) {
      follower.overrun = true;
      return false;
    }
    if (!std::exchange(checking_stall_, true)) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(limits_.stalled - idle);
      later(rest, [](Impl& self, Actions& more) {
        self.checking_stall_ = false;
        self.read_main(more);
      });
    }
    return true;
  }

  void read_main(Actions& actions) {
    if (!stream_ || reading_ || finished_ || held()) return;
    reading_ = true;
    actions.push_back([self = shared_from_this(), stream = stream_] {
      stream->read([self, stream](absl::StatusOr<std::string> bytes) {
        self->with([&](Actions& more) {
          if (self->stream_ != stream) return;
          self->reading_ = false;
          self->received(more, std::move(bytes));
        });
      });
    });
  }

  void received(Actions& actions, absl::StatusOr<std::string> bytes) {
    if (!bytes.ok()) return stream_lost(actions, bytes.status());
    if (bytes->empty()) return stream_lost(actions, absl::UnavailableError("it ended without an exit"));
    if (auto status = decoder_.append(*bytes); !status.ok()) return stream_lost(actions, status);
    while (auto frame = decoder_.next()) {
      if (frame->channel == boundary::Channel::exit_status) {
        auto status = boundary::decode_exit_status(frame->payload);
        if (!status.ok()) return stream_lost(actions, status.status());
        return finish(actions, std::clamp(status->code(), 0, 255));
      }
      const bool out = frame->channel == boundary::Channel::stdout_data;
      if (!out && frame->channel != boundary::Channel::stderr_data) return stream_lost(actions, absl::InternalError("unexpected channel"));
      if (frame->payload.empty()) continue;
      const auto event = next_event_++;
      if (event < log_.next()) continue;  // read before the connection was repaired
      log_.skip(event - log_.next());
      append(actions, {out ? ProcessOutput::Kind::standard_output : ProcessOutput::Kind::standard_error, std::move(frame->payload), 0});
    }
    if (decoder_.dead()) return stream_lost(actions, absl::InternalError("malformed process frame"));
    read_main(actions);
  }

  void append(Actions& actions, ProcessOutput output) {
    for (auto& [number, follower] : followers_) follower.behind += output.bytes.size();
    log_.append(std::move(output));
    serve_all(actions);
  }

  void stream_lost(Actions& actions, const absl::Status& why) {
    auto stream = std::exchange(stream_, nullptr);
    actions.push_back([stream] { stream->reset(); });
    if (code_) return finish(actions, *code_);  // output that flows on and on after the exit: no more of it belongs to main
    lost_before_exit_ = true;
    spdlog::warn("main's stream was lost: {}", why.ToString());
    actions.push_back([self = shared_from_this()] {
      self->boundary_->check_link([self](bool usable) {
        if (!usable) return self->close("the boundary is lost");
        self->with([&](Actions& more) {
          if (self->finished_) return;
          self->lost_before_exit_ = false;
          more.push_back([self] { self->reattach_main(); });
        });
      });
    });
  }

  void finish(Actions& actions, int code) {
    if (finished_) return;
    finished_ = true;
    exit_code_ = code;
    if (expectation_ == Expectation::declared) expectation_ = Expectation::pending;
    if (stream_) actions.push_back([stream = std::exchange(stream_, nullptr)] { stream->reset(); });
    fail_input(actions, absl::OkStatus());
    serve_all(actions);
    check_drained(actions);
  }

  // ---- output to attachments

  void serve_all(Actions& actions) {
    for (auto& [number, follower] : followers_) serve(actions, follower);
  }

  /// Answers an outstanding read, if there is something to say.
  void serve(Actions& actions, Follower& follower) {
    if (!follower.reader) return;
    if (follower.cursor < log_.first()) {
      const auto lost = log_.first() - follower.cursor;
      return answer(actions, follower, absl::DataLossError(fmt::format("fell behind by {} output chunks", lost)));
    }
    if (follower.cursor < log_.next()) {
      ProcessOutput output = log_.at(follower.cursor++);
      while (follower.cursor < log_.next()) {
        const auto& more = log_.at(follower.cursor);
        if (more.kind != output.kind || output.bytes.size() + more.bytes.size() > kLargestRead) break;
        output.bytes += more.bytes;
        ++follower.cursor;
      }
      follower.behind -= std::min(follower.behind, output.bytes.size());
      follower.overrun = false;
      return answer(actions, follower, std::move(output));
    }
    if (finished_ && acknowledged_) {
      if (std::exchange(follower.told_exit, true)) return answer(actions, follower, absl::OutOfRangeError("the main process has ended"));
      return answer(actions, follower, ProcessOutput{ProcessOutput::Kind::exit, {}, exit_code_});
    }
    if (!closed_.ok()) answer(actions, follower, closed_);
  }

  static void answer(Actions& actions, Follower& follower, absl::StatusOr<ProcessOutput> output) {
    if (!follower.reader) return;
    actions.push_back([reader = std::exchange(follower.reader, nullptr), answers = follower.answers,
                       value = std::make_shared<absl::StatusOr<ProcessOutput>>(std::move(output))] {
      answers->post([reader, value] { (*reader)(std::move(*value)); });
    });
  }

  void check_drained(Actions& actions) {
    const bool awaited = expectation_ == Expectation::declared || expectation_ == Expectation::pending;
    if (drained_ && followers_.empty() && !awaited) actions.push_back(std::exchange(drained_, nullptr));
  }

  // ---- input

  void release(Actions& actions, std::uint64_t number) {
    if (owner_ == number) owner_ = 0;
    if (waiting_ && waiting_->number == number) {
      actions.push_back([held = waiting_->done] { (*held)(absl::CancelledError("the attachment was ended")); });
      waiting_.reset();
    }
  }

  void feed(Actions& actions) {
    if (!stream_ || writing_ || input_.empty()) return;
    writing_ = true;
    actions.push_back([self = shared_from_this(), stream = stream_,
                       frame = boundary::encode_process_frame(boundary::Channel::stdin_data, input_.front())] {
      stream->write(frame, [self, stream](const absl::Status& status) {
        self->with([&](Actions& more) {
          if (self->stream_ != stream) return;
          self->writing_ = false;
          if (!status.ok()) return;  // the read of this stream says it too
          self->input_.pop_front();
          if (self->waiting_) {
            self->input_.push_back(std::move(self->waiting_->bytes));
            more.push_back([held = self->waiting_->done] { (*held)(absl::OkStatus()); });
            self->waiting_.reset();
          }
          self->feed(more);
        });
      });
    });
  }

  void fail_input(Actions& actions, const absl::Status& status) {
    input_.clear();
    if (!waiting_) return;
    actions.push_back([held = waiting_->done, status] { (*held)(status); });
    waiting_.reset();
  }

  const std::shared_ptr<BoundaryClient> boundary_;
  const std::shared_ptr<TimerThread> timers_;
  const Limits limits_;
  std::mutex mutex_;
  Expectation expectation_;
  MainLog log_;
  std::map<std::uint64_t, Follower> followers_;
  std::uint64_t last_number_ = 0;
  std::uint64_t owner_ = 0;        // of the input lease; 0: nobody
  std::deque<std::string> input_;  // the front is being written
  std::optional<Waiting> waiting_;
  std::uint64_t waits_ = 0;
  std::string process_id_;
  std::shared_ptr<TerminalResizer> resizer_;
  std::shared_ptr<egress::ByteStream> stream_;
  boundary::ProcessFrameDecoder decoder_;
  std::uint64_t next_event_ = 0;  // of this stream, as the runtime counts; the log counts alike
  std::optional<int> code_;       // as `wait` said it
  int exit_code_ = 0;
  std::function<void()> drained_;
  absl::Status closed_;
  bool reading_ = false, writing_ = false;
  bool finished_ = false;  // all output is here
  bool acknowledged_ = false;
  bool lost_before_exit_ = false;
  bool holding_for_declared_ = false;
  bool checking_stall_ = false;
};

// ---- the public faces

std::shared_ptr<MainSession> MainSession::make(std::shared_ptr<BoundaryClient> boundary, std::shared_ptr<TimerThread> timers, bool terminal,
                                               bool declared, Limits limits) {
  return std::shared_ptr<MainSession>{
      new MainSession{std::make_shared<Impl>(std::move(boundary), std::move(timers), terminal, declared, limits)}};
}

MainSession::MainSession(std::shared_ptr<Impl> impl) : impl_{std::move(impl)} {}
MainSession::~MainSession() { impl_->close("the supervisor ends"); }

void MainSession::started(std::string process_id) { impl_->started(std::move(process_id)); }
void MainSession::exited(int code) { impl_->exited(code); }
void MainSession::acknowledged() { impl_->acknowledged(); }
void MainSession::drain(std::function<void()> done) { impl_->drain(std::move(done)); }
void MainSession::close(const std::string& reason) { impl_->close(reason); }

absl::StatusOr<std::shared_ptr<MainAttachment>> MainSession::attach() {
  auto number = impl_->attach();
  if (!number.ok()) return number.status();
  return std::shared_ptr<MainAttachment>{new MainAttachment{impl_, *number}};
}

MainAttachment::MainAttachment(std::shared_ptr<MainSession::Impl> session, std::uint64_t number)
    : session_{std::move(session)}, number_{number} {}
MainAttachment::~MainAttachment() { detach(); }

void MainAttachment::read(ReadDone done) { session_->read(number_, std::move(done)); }
absl::Status MainAttachment::acquire_input() { return session_->acquire(number_); }
void MainAttachment::release_input() { session_->give_up(number_); }
bool MainAttachment::owns_input() const { return session_->owns(number_); }
void MainAttachment::write(std::string bytes, WriteDone done) { session_->write(number_, std::move(bytes), std::move(done)); }
void MainAttachment::resize(std::uint32_t columns, std::uint32_t rows) { session_->resize(usable_size(columns, rows)); }
void MainAttachment::signal(boundary::ProcessSignal signal) { session_->signal(signal); }
void MainAttachment::detach() { session_->detach(number_); }

}  // namespace openshell::supervisor
