#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "egress/stream.hpp"
#include "isolation/boundary/framing.hpp"
#include "programs/supervisor/boundary_client.hpp"
#include "programs/supervisor/serial_queue.hpp"

namespace openshell::internal::exec::v1 {
class Start;
class ToGateway;
class ToSupervisor;
}  // namespace openshell::internal::exec::v1

namespace openshell::supervisor {

class TerminalResizer;

/// Takes length-prefixed messages out of a byte stream; refuses by the length, before anything is stored.
class ExecFrameDecoder {
 public:
  static constexpr std::size_t kMaxMessageBytes = 65'536;
  static constexpr std::size_t kMaxStartBytes = 524'288;  ///< the first message

  absl::Status append(std::string_view bytes);
  /// One whole message, undecoded.
  std::optional<std::string> next();

 private:
  absl::Status check_length() const;
  std::string buffer_;
  bool first_ = true;
};

/// `message` behind its length.
std::string encode_exec_frame(const internal::exec::v1::ToGateway& message);

/// Why a start is not taken: INVALID_ARGUMENT, or OK.
absl::Status check_start(const internal::exec::v1::Start& start);

/// One exec of the gateway: the messages of the relay on one side, the boundary's exec stream on the other.
///
/// Credit: the gateway may have 262,144 bytes of stdin on the way; it gets back what the sandbox took or what was thrown away, so that
/// control messages never wait behind stdin. Output is read only as fast as the relay takes it. A relay that ends before `exit` was sent is
/// a cancel: the whole tree of the exec is ended. Silence ends nothing. [EX rows]
class ExecRelay : public std::enable_shared_from_this<ExecRelay> {
 public:
  struct Limits {
    std::size_t stdin_window = 262'144;
    std::size_t output_message = 32'768;
    std::size_t output_queued = 65'536;  ///< bytes that wait for the relay; then the boundary is not read
    std::chrono::milliseconds start_deadline{10'000};
    std::chrono::milliseconds started_deadline{30'000};
    std::chrono::milliseconds occupied_retry{2'000};  ///< "prior exec attachment" is asked again for so long
    std::chrono::milliseconds end_deadline{500};      ///< the relay ends within this after `exit`
  };

  ExecRelay(std::shared_ptr<egress::ByteStream> relay, std::shared_ptr<BoundaryClient> boundary, std::shared_ptr<TimerThread> timers,
            Limits limits, std::function<void()> ended)
      : boundary_{std::move(boundary)}, timers_{std::move(timers)}, limits_{limits}, ended_{std::move(ended)}, relay_{std::move(relay)} {}
  ~ExecRelay();

  void run();
  /// The gateway aborted the relay.
  void abort();

 private:
  using Message = internal::exec::v1::ToSupervisor;

  void read_relay();
  void from_relay(absl::StatusOr<std::string> bytes);
  void take(const Message& message);
  void start(const internal::exec::v1::Start& start);
  void open(boundary::ExecSpec spec, std::chrono::steady_clock::time_point give_up);
  void opened(absl::StatusOr<Opened> result, const boundary::ExecSpec& spec, std::chrono::steady_clock::time_point give_up);
  void refuse(const boundary::Error& error);
  void feed_stdin();
  void stdin_gone();
  void read_boundary();
  void from_boundary(absl::StatusOr<std::string> bytes);
  void output(boundary::Channel channel, std::string_view bytes);
  void send(const internal::exec::v1::ToGateway& message);
  void write_relay();
  void finish_with_exit(int code);
  void finish_with_failure(int code, const std::string& text);
  void conclude();
  void protocol_error(const std::string& what);
  void cancel();
  void close();
  void post(std::function<void()> work);

  const std::shared_ptr<BoundaryClient> boundary_;
  const std::shared_ptr<TimerThread> timers_;
  const Limits limits_;
  std::function<void()> ended_;
  SerialQueue serial_;  // everything below is touched by it only
  std::shared_ptr<egress::ByteStream> relay_;
  std::shared_ptr<egress::ByteStream> process_;
  ExecFrameDecoder in_;
  boundary::ProcessFrameDecoder out_;
  std::string exec_id_, process_id_;
  std::uint32_t cols_ = 0, rows_ = 0;
  std::shared_ptr<TerminalResizer> terminal_;  // with a terminal, once it runs
  std::deque<std::string> stdin_;              // the front is being written
  std::size_t stdin_bytes_ = 0;                // received and not credited
  std::deque<std::string> to_relay_;           // the front is being written
  std::size_t to_relay_bytes_ = 0;
  bool tty_ = false;
  bool started_ = false;  // a start was taken
  bool running_ = false;  // the boundary said so
  bool stdin_writing_ = false;
  bool stdin_end_ = false;     // no more comes from the gateway
  bool stdin_closed_ = false;  // the process takes no more
  bool boundary_reading_ = false;
  bool concluded_ = false;  // exit or failure is queued: nothing follows
  bool flushed_ = false;    // and was written
  bool cancelled_ = false;
  bool closed_ = false;
};

}  // namespace openshell::supervisor
