#include "actors/sandbox/managed_process.hpp"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <mutex>

#include "isolation/boundary/framing.hpp"
#include "isolation/launcher.hpp"

namespace openshell::sandbox {

namespace asio = boost::asio;
using boost::system::error_code;
using boundary::Channel;
using Clock = std::chrono::steady_clock;

namespace {
constexpr std::size_t kFrameHeaderBytes = 5;
constexpr std::size_t kEventBytes = boundary::kMaxChunkBytes - kFrameHeaderBytes;
constexpr std::chrono::milliseconds kDrainTick{100};
}  // namespace

/// State is guarded by `mutex_`; descriptors are used on the executor only.
class ManagedProcess::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& context, std::string name, bool is_main, Ends ends, Limits bounds)
      : io{context},
        id{std::move(name)},
        main{is_main},
        terminal{ends.terminal.valid()},
        limits{bounds},
        input{context},
        outputs{Output{context}, Output{context}},
        drain{context} {
    if (terminal) {
      outputs[0].channel = Channel::stdout_data;
      input.assign(::dup(ends.terminal.get()));
      outputs[0].pipe.assign(ends.terminal.release());
      outputs[1].ended = true;
    } else {
      outputs[0].channel = Channel::stdout_data;
      outputs[1].channel = Channel::stderr_data;
      input.assign(ends.standard_input.release());
      outputs[0].pipe.assign(ends.standard_output.release());
      outputs[1].pipe.assign(ends.standard_error.release());
    }
    error_code ignored;
    input.non_blocking(true, ignored);
    for (auto& output : outputs) {
      if (output.pipe.is_open()) output.pipe.non_blocking(true, ignored);
    }
  }

  struct Event {
    Channel channel;
    std::string bytes;
  };
  struct Output {
    explicit Output(asio::io_context& context) : pipe{context} {}
    asio::posix::stream_descriptor pipe;
    Channel channel = Channel::stdout_data;
    bool ended = false;
    bool reading = false;
  };

  // ---- output, on the executor

  void read(std::size_t index) {
    Output& output = outputs[index];
    {
      const std::lock_guard lock{mutex};
      if (output.ended || output.reading) return;
      if (attached && undelivered >= limits.undelivered_bytes) return;  // the attachment asks again when it has caught up
      if (holding_locked()) return;                                     // the first attachment reads on
      output.reading = true;
    }
    output.pipe.async_wait(asio::posix::stream_descriptor::wait_read,
                           [self = shared_from_this(), index](const error_code& error) { self->readable(index, error); });
  }

  void readable(std::size_t index, const error_code& waited) {
    Output& output = outputs[index];
    std::string bytes(kEventBytes, '\0');
    error_code error = waited;
    const std::size_t n = error ? 0 : output.pipe.read_some(asio::buffer(bytes), error);
    const bool again = error == asio::error::would_block || error == asio::error::interrupted;
    {
      const std::lock_guard lock{mutex};
      output.reading = false;
      if (n > 0) {
        bytes.resize(n);
        bytes.shrink_to_fit();
        last_byte = Clock::now();
        append_locked({output.channel, std::move(bytes)});
      } else if (!again) {
        output.ended = true;  // end of file; a terminal says EIO when its last process has gone
        error_code ignored;
        output.pipe.close(ignored);
        if (terminal) input.close(ignored);  // the other descriptor of the master: with it the terminal's number is free
      }
    }
    if (n > 0 || again) {
      read(index);
    } else {
      check_finished();
    }
    wake_stream();
  }

  /// Nothing is lost before the first attachment, which on a busy host comes when a quick process has long written more than is retained.
  [[nodiscard]] bool holding_locked() const { return !heard && retained_bytes + kEventBytes > limits.retained_bytes; }

  void append_locked(Event event) {
    retained_bytes += event.bytes.size();
    if (attached) undelivered += event.bytes.size();
    events.push_back(std::move(event));
    ++next_sequence;
    evict_locked();
  }

  void evict_locked() {
    while (retained_bytes > limits.retained_bytes && !events.empty() && !(attached && first_sequence >= cursor)) {
      retained_bytes -= events.front().bytes.size();
      events.pop_front();
      ++first_sequence;
    }
  }

  // ---- exit

  /// The status is published when the output is: all pipes at their end, or quiet for long enough.
  void check_finished() {
    bool now_finished = false, failed = false, again = false;
    {
      const std::lock_guard lock{mutex};
      if (!status || finished || delivery_failed) return;
      const auto now = Clock::now();
      const bool ended = outputs[0].ended && outputs[1].ended;
      const bool quiet = now - std::max(last_byte, exit_time) >= limits.idle && (!attached || undelivered == 0) && !holding_locked();
      if (ended || quiet) {
        finished = now_finished = true;
      } else if (holding_locked() && now - exit_time >= limits.delivery) {
        heard = again = true;  // nobody came
        exit_time = now;
      } else if (now - exit_time >= limits.delivery) {
        delivery_failed = failed = true;
      } else {
        again = true;
      }
    }
    if (again) {
      for (std::size_t i = 0; i < outputs.size(); ++i) read(i);
      drain.expires_after(kDrainTick);
      drain.async_wait([self = shared_from_this()](const error_code& error) {
        if (!error) self->check_finished();
      });
    }
    if (now_finished || failed) wake_stream();
  }

  void wake_stream();

  // ---- input, on the executor

  void write_input(std::string bytes, std::function<void()> done) {
    if (!input.is_open()) {
      done();
      return;
    }
    auto held = std::make_shared<std::string>(std::move(bytes));
    asio::async_write(input, asio::buffer(*held),
                      [self = shared_from_this(), held, done = std::move(done)](const error_code& error, std::size_t) {
                        if (error && !self->main) self->close_input();  // nobody reads any more
                        done();
                      });
  }

  void close_input() {
    error_code ignored;
    if (!terminal) input.close(ignored);
  }

  void stream_gone() {
    {
      const std::lock_guard lock{mutex};
      attached = false;
      undelivered = 0;
      evict_locked();
    }
    if (!main) close_input();  // main's stays open for the next attachment
    for (std::size_t i = 0; i < outputs.size(); ++i) read(i);
    check_finished();
  }

  asio::io_context& io;
  const std::string id;
  const bool main;
  const bool terminal;
  const Limits limits;
  asio::posix::stream_descriptor input;
  std::array<Output, 2> outputs;
  asio::steady_timer drain;

  mutable std::mutex mutex;
  std::deque<Event> events;
  std::uint64_t first_sequence = 0, next_sequence = 0;
  std::size_t retained_bytes = 0;
  bool attached = false;
  bool heard = false;           // there was an attachment
  std::uint64_t cursor = 0;     // of the attachment: its next event
  std::size_t undelivered = 0;  // bytes from the cursor on
  std::weak_ptr<Stream> stream;
  std::optional<boundary::ExitStatus> status;
  Clock::time_point exit_time{}, last_byte{};
  bool finished = false, delivery_failed = false;
  pid_t pid = 0;
  isolation::FileDescriptor pidfd;
  isolation::JobTag job;
};

/// The attachment. Runs on the executor of its process: calls of gRPC's threads are posted there.
class ManagedProcess::Stream final : public CallStream, public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(std::shared_ptr<Impl> process) : process_{std::move(process)} {}

  void start(std::shared_ptr<Call> call) override {
    asio::post(process_->io, [self = shared_from_this(), call = std::move(call)] {
      self->call_ = call;
      self->writable_ = true;
      call->read();
      self->pump();
    });
  }
  void received(std::string bytes) override {
    asio::post(process_->io, [self = shared_from_this(), bytes = std::move(bytes)] {
      if (!self->decoder_.append(bytes).ok()) {
        self->call_->finish(CallEnd::refused, "malformed process frame");
        return;
      }
      self->next_frame();
    });
  }
  void received_end() override {
    asio::post(process_->io, [self = shared_from_this()] {
      if (!self->process_->main) self->process_->close_input();
    });
  }
  void written() override {
    asio::post(process_->io, [self = shared_from_this()] {
      self->writable_ = true;
      self->pump();
    });
  }
  void ended() override {
    asio::post(process_->io, [self = shared_from_this()] {
      self->process_->stream_gone();
      self->call_.reset();
    });
  }

  /// Sends the next event, the status behind the last one, or nothing until there is more. On the executor.
  void pump() {
    if (!writable_ || !call_) return;
    std::string frame;
    bool last = false, resume = false;
    {
      const std::lock_guard lock{process_->mutex};
      auto& p = *process_;
      if (p.cursor < p.next_sequence) {
        const Impl::Event& event = p.events[p.cursor - p.first_sequence];
        frame = boundary::encode_process_frame_header(event.channel, static_cast<std::uint32_t>(event.bytes.size()));
        frame += event.bytes;
        ++p.cursor;
        resume = p.undelivered >= p.limits.undelivered_bytes;
        p.undelivered -= event.bytes.size();
        resume = resume && p.undelivered < p.limits.undelivered_bytes;
        p.evict_locked();
      } else if (p.finished) {
        frame = boundary::encode_process_frame(Channel::exit_status, boundary::encode_exit_status(*p.status));
        last = true;
      } else if (p.delivery_failed) {
        last = true;
      }
    }
    if (!frame.empty()) {
      writable_ = false;
      call_->write(std::move(frame));
    }
    if (last) {
      writable_ = false;
      call_->finish(process_->delivery_failed ? CallEnd::broken : CallEnd::done, process_->delivery_failed ? "output delivery failed" : "");
    }
    if (resume) {
      for (std::size_t i = 0; i < process_->outputs.size(); ++i) process_->read(i);
    }
  }

 private:
  /// Standard input is written frame by frame; the next bytes are asked for only when all of these are in the pipe.
  void next_frame() {
    if (!call_) return;
    auto frame = decoder_.next();
    if (!frame) {
      if (decoder_.dead()) {
        call_->finish(CallEnd::refused, "malformed process frame");
      } else {
        call_->read();
      }
      return;
    }
    if (frame->channel == Channel::stdin_data) {
      process_->write_input(std::move(frame->payload), [self = shared_from_this()] { self->next_frame(); });
    } else if (frame->channel == Channel::stdin_closed) {
      if (!process_->main) process_->close_input();
      next_frame();
    } else {
      call_->finish(CallEnd::refused, "unexpected channel in a process stream");
    }
  }

  std::shared_ptr<Impl> process_;
  std::shared_ptr<Call> call_;
  boundary::ProcessFrameDecoder decoder_;
  bool writable_ = false;
};

void ManagedProcess::Impl::wake_stream() {
  std::shared_ptr<Stream> open;
  {
    const std::lock_guard lock{mutex};
    open = stream.lock();
  }
  if (open) open->pump();
}

ManagedProcess::ManagedProcess() = default;
ManagedProcess::~ManagedProcess() = default;

std::shared_ptr<ManagedProcess> ManagedProcess::create(asio::io_context& io, std::string id, bool main, Ends ends, Limits limits) {
  std::shared_ptr<ManagedProcess> process{new ManagedProcess};
  process->impl_ = std::make_shared<Impl>(io, std::move(id), main, std::move(ends), limits);
  return process;
}

const std::string& ManagedProcess::id() const { return impl_->id; }
bool ManagedProcess::is_main() const { return impl_->main; }
bool ManagedProcess::has_terminal() const { return impl_->terminal; }

void ManagedProcess::launched(isolation::LaunchedProcess process) {
  {
    const std::lock_guard lock{impl_->mutex};
    impl_->pid = process.pid;
    impl_->pidfd = std::move(process.pidfd);
    impl_->job = process.job;
  }
  asio::post(impl_->io, [impl = impl_] {
    for (std::size_t i = 0; i < impl->outputs.size(); ++i) impl->read(i);
  });
}

void ManagedProcess::exited(boundary::ExitStatus status) {
  {
    const std::lock_guard lock{impl_->mutex};
    impl_->status = status;
    impl_->exit_time = Clock::now();
  }
  asio::post(impl_->io, [impl = impl_] { impl->check_finished(); });
}

std::optional<boundary::ExitStatus> ManagedProcess::status() const {
  const std::lock_guard lock{impl_->mutex};
  return impl_->status;
}

boundary::RetainedOutput ManagedProcess::retained() const {
  const std::lock_guard lock{impl_->mutex};
  return {impl_->first_sequence, impl_->next_sequence, impl_->first_sequence != 0};
}

bool ManagedProcess::attached() const {
  const std::lock_guard lock{impl_->mutex};
  return impl_->attached;
}

isolation::JobTag ManagedProcess::job() const {
  const std::lock_guard lock{impl_->mutex};
  return impl_->job;
}

pid_t ManagedProcess::pid() const {
  const std::lock_guard lock{impl_->mutex};
  return impl_->pid;
}

std::shared_ptr<CallStream> ManagedProcess::attach() {
  const std::lock_guard lock{impl_->mutex};
  if (impl_->attached) return nullptr;
  impl_->attached = impl_->heard = true;
  impl_->cursor = impl_->first_sequence;
  impl_->undelivered = impl_->retained_bytes;
  auto stream = std::make_shared<Stream>(impl_);
  impl_->stream = stream;
  asio::post(impl_->io, [impl = impl_] {
    for (std::size_t i = 0; i < impl->outputs.size(); ++i) impl->read(i);
  });
  return stream;
}

bool ManagedProcess::signal(int number) {
  const std::lock_guard lock{impl_->mutex};
  if (impl_->status || impl_->pid <= 0) return false;
  // The leader is asked by pidfd first: while it is not reaped, its number names this group and no other.
  if (::syscall(SYS_pidfd_send_signal, impl_->pidfd.get(), 0, nullptr, 0) != 0) return false;
  return ::kill(-impl_->pid, number) == 0;
}

void ManagedProcess::resize(std::uint16_t columns, std::uint16_t rows) {
  if (!impl_->terminal) return;
  asio::post(impl_->io, [impl = impl_, columns, rows] {
    if (!impl->outputs[0].pipe.is_open()) return;
    const winsize size{rows, columns, 0, 0};
    ::ioctl(impl->outputs[0].pipe.native_handle(), TIOCSWINSZ, &size);
  });
}

}  // namespace openshell::sandbox
