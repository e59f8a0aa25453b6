#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "messages/supervisor.hpp"
#include "programs/supervisor/boundary_channel.hpp"
#include "programs/supervisor/timer_thread.hpp"

namespace openshell::supervisor {

/// The result type `T` of an answer; a refusal becomes a status: invalid InvalidArgument, denied PermissionDenied, unavailable
/// ResourceExhausted (the transport's own failures keep Unavailable), terminated Aborted, process Internal.
template <class T>
absl::StatusOr<T> result_as(const boundary::Response& response);
absl::Status refusal_status(const boundary::Error& error);

/// The supervisor's end of the boundary: attach, confirm, every later operation, and the repair of a cut connection. Any thread.
///
/// Repair: a transport failure is answered with a probe (confirm, 5 s). If the link is dead another connection is made every 100 ms for 30
/// s, and attach and confirm are replayed with their own request ids. All callers share one repair. After 30 s the link is lost for good.
class BoundaryClient : public std::enable_shared_from_this<BoundaryClient> {
 public:
  struct Limits {
    std::chrono::milliseconds recovery_window{30'000};
    std::chrono::milliseconds first_pause{1};        ///< before the sandbox is looked for again, growing to `retry_pause`
    std::chrono::milliseconds retry_pause{100};      ///< between connections
    std::chrono::milliseconds call_retry_pause{25};  ///< before a call is repeated on a repaired link
  };

  static std::shared_ptr<BoundaryClient> make(boundary::Descriptor descriptor, BoundaryChannel::Bearer bearer, std::string instance_id,
                                              std::shared_ptr<TimerThread> timers, Limits limits);
  ~BoundaryClient();

  /// The image's policy, before attach. Waits up to 300 s for the sandbox to listen.
  absl::StatusOr<boundary::ImagePolicy> discover_policy(const std::function<bool()>& stopping);
  /// Attaches with the admitted policy. PermissionDenied is the sandbox's refusal.
  absl::StatusOr<boundary::Snapshot> attach(const boundary::BoundaryPolicy& policy);
  /// Confirms and verifies everything that the sandbox claims: generation, session, identity, instance, fence, claims, audit.
  absl::StatusOr<boundary::Confirmation> confirm();

  /// One operation. Repeated after a repair when the transport failed before an answer; the runtime's replay ledger makes that safe for
  /// those it keeps. `done` runs once, on any thread.
  void call(boundary::Request request, std::optional<std::chrono::milliseconds> deadline, BoundaryChannel::Done done);
  /// The same for one that must not be repeated (exec, loopback_connect, accept_network, open_mediation). `request_id` may be chosen.
  void open_once(const std::string& request_id, boundary::Request request, std::optional<std::chrono::milliseconds> deadline,
                 BoundaryChannel::Done done);
  /// Waits for `call`.
  absl::StatusOr<boundary::Response> call_and_wait(boundary::Request request, std::chrono::milliseconds deadline);

  /// What the runtime holds of every process now. After `attach`; `done` as of `call`.
  void survey(absl::AnyInvocable<void(absl::StatusOr<boundary::Snapshot>)> done);

  /// Tells that a stream failed: the link is probed and repaired if it is dead. `done` runs with whether the link is usable.
  void check_link(std::function<void(bool usable)> done);
  /// Runs on every change, on any thread. Set before confirm.
  void on_link(std::function<void(LinkState)> changed);

  /// From now on nothing is repaired: the boundary is to end.
  void stop_repairing();
  [[nodiscard]] bool lost() const;
  [[nodiscard]] const boundary::Descriptor& descriptor() const noexcept { return descriptor_; }

 private:
  BoundaryClient(boundary::Descriptor descriptor, BoundaryChannel::Bearer bearer, std::string instance_id,
                 std::shared_ptr<TimerThread> timers, Limits limits);

  std::shared_ptr<BoundaryChannel> channel() const;
  absl::StatusOr<std::shared_ptr<BoundaryChannel>> connect();
  absl::StatusOr<boundary::Response> ask(BoundaryChannel& channel, const std::string& request_id, const boundary::Request& request,
                                         std::chrono::milliseconds deadline);
  absl::Status verify(const boundary::Confirmation& confirmation) const;
  void attempt(std::string request_id, boundary::Request request, std::optional<std::chrono::milliseconds> deadline,
               BoundaryChannel::Done done);
  void repair();  // on its own thread
  bool probe();
  absl::Status replay();
  void set_state(LinkState state);

  const boundary::Descriptor descriptor_;
  const BoundaryChannel::Bearer bearer_;
  const std::string instance_id_;
  const std::shared_ptr<TimerThread> timers_;
  const Limits limits_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::shared_ptr<BoundaryChannel> channel_;
  std::optional<boundary::Attach> attach_;
  std::string attach_id_;
  std::string confirm_id_;
  bool confirmed_ = false;
  bool stopping_ = false;
  LinkState state_ = LinkState::connected;
  bool repairing_ = false;
  std::vector<std::function<void(bool)>> waiting_;
  std::function<void(LinkState)> changed_;
};

template <class T>
absl::StatusOr<T> result_as(const boundary::Response& response) {
  if (const auto* wanted = std::get_if<T>(&response)) return *wanted;
  if (const auto* error = std::get_if<boundary::Error>(&response)) return refusal_status(*error);
  return absl::InternalError("the boundary answered with '" + std::string{boundary::result_name(response)} + "'");
}

}  // namespace openshell::supervisor
