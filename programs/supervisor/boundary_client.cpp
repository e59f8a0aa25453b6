#include "programs/supervisor/boundary_client.hpp"

#include <unistd.h>

#include <algorithm>
#include <future>
#include <utility>

namespace openshell::supervisor {
namespace {

bool transport_failed(const absl::StatusOr<Opened>& answer) { return !answer.ok(); }

/// A refusal that a later attempt may not meet: the runtime has not seen the end of the old connection yet.
bool still_occupied(const absl::Status& status) { return status.code() == absl::StatusCode::kResourceExhausted; }

/// False where an attempt to connect would fail for sure, which costs a thousand times as much as this look.
bool listens(const boundary::Transport& transport) {
  const auto* unix_socket = std::get_if<boundary::UnixTransport>(&transport);
  return unix_socket == nullptr || access(unix_socket->socket_path.c_str(), F_OK) == 0;
}

}  // namespace

absl::Status refusal_status(const boundary::Error& error) {
  switch (error.kind) {
    case boundary::ErrorKind::invalid:
      return absl::InvalidArgumentError(error.message);
    case boundary::ErrorKind::denied:
      return absl::PermissionDeniedError(error.message);
    case boundary::ErrorKind::unavailable:
      return absl::ResourceExhaustedError(error.message);
    case boundary::ErrorKind::terminated:
      return absl::AbortedError(error.message);
    case boundary::ErrorKind::process:
      return absl::InternalError(error.message);
  }
  return absl::InternalError(error.message);
}

std::shared_ptr<BoundaryClient> BoundaryClient::make(boundary::Descriptor descriptor, BoundaryChannel::Bearer bearer,
                                                     std::string instance_id, std::shared_ptr<TimerThread> timers, Limits limits) {
  return std::shared_ptr<BoundaryClient>{
      new BoundaryClient{std::move(descriptor), std::move(bearer), std::move(instance_id), std::move(timers), limits}};
}

BoundaryClient::BoundaryClient(boundary::Descriptor descriptor, BoundaryChannel::Bearer bearer, std::string instance_id,
                               std::shared_ptr<TimerThread> timers, Limits limits)
    : descriptor_{std::move(descriptor)},
      bearer_{std::move(bearer)},
      instance_id_{std::move(instance_id)},
      timers_{std::move(timers)},
      limits_{limits},
      attach_id_{make_uuid()},
      confirm_id_{make_uuid()} {}

BoundaryClient::~BoundaryClient() = default;

std::shared_ptr<BoundaryChannel> BoundaryClient::channel() const {
  const std::lock_guard lock{mutex_};
  return channel_;
}

absl::StatusOr<std::shared_ptr<BoundaryChannel>> BoundaryClient::connect() {
  auto made = BoundaryChannel::make(descriptor_, bearer_);
  if (!made.ok()) return made.status();
  const std::lock_guard lock{mutex_};
  channel_ = *made;
  return *made;
}

absl::StatusOr<boundary::Response> BoundaryClient::ask(BoundaryChannel& channel, const std::string& request_id,
                                                       const boundary::Request& request, std::chrono::milliseconds deadline) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<boundary::Response>>>();
  auto answer = promise->get_future();
  channel.request(request_id, request, deadline, [promise](absl::StatusOr<Opened> opened) {
    if (opened.ok()) {
      promise->set_value(std::move(opened->response));
    } else {
      promise->set_value(opened.status());
    }
  });
  return answer.get();
}

absl::StatusOr<boundary::ImagePolicy> BoundaryClient::discover_policy(const std::function<bool()>& stopping) {
  const auto begin = std::chrono::steady_clock::now(), give_up = begin + kSlowCallDeadline;
  // The sandbox starts beside the supervisor and mostly listens a few milliseconds later: a pause grows with what was waited for already.
  const auto pause = [&] {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    std::unique_lock lock{mutex_};
    wake_.wait_for(lock, std::clamp(waited / 16, limits_.first_pause, limits_.retry_pause), [this] { return stopping_; });
    return stopping_;
  };
  while (!listens(descriptor_.transport) && !stopping() && std::chrono::steady_clock::now() < give_up) {
    if (pause()) return absl::CancelledError("the supervisor is stopping");
  }
  while (true) {
    auto connected = connect();
    if (!connected.ok()) return connected.status();
    auto answer = ask(**connected, make_uuid(), boundary::DiscoverPolicy{}, kCallDeadline);
    if (answer.ok()) return result_as<boundary::ImagePolicy>(*answer);
    if (stopping() || std::chrono::steady_clock::now() >= give_up) return answer.status();
    if (pause()) return absl::CancelledError("the supervisor is stopping");
  }
}

absl::StatusOr<boundary::Snapshot> BoundaryClient::attach(const boundary::BoundaryPolicy& policy) {
  const boundary::Attach request{instance_id_, policy, descriptor_.resource_claims};
  auto answer = ask(*channel(), attach_id_, request, kSlowCallDeadline);
  if (!answer.ok()) return answer.status();
  auto attached = result_as<boundary::Attached>(*answer);
  if (!attached.ok()) return attached.status();
  if (attached->snapshot.generation != descriptor_.generation)
    return absl::PermissionDeniedError("the boundary is of another generation than the descriptor");
  const std::lock_guard lock{mutex_};
  attach_ = request;
  return std::move(attached->snapshot);
}

absl::StatusOr<boundary::Confirmation> BoundaryClient::confirm() {
  auto answer = ask(*channel(), confirm_id_, boundary::Confirm{}, kCallDeadline);
  if (!answer.ok()) return answer.status();
  auto confirmed = result_as<boundary::Confirmed>(*answer);
  if (!confirmed.ok()) return confirmed.status();
  if (auto status = verify(confirmed->confirmation); !status.ok()) return status;
  const std::lock_guard lock{mutex_};
  confirmed_ = true;
  return std::move(confirmed->confirmation);
}

absl::Status BoundaryClient::verify(const boundary::Confirmation& claim) const {
  if (claim.generation != descriptor_.generation) return absl::PermissionDeniedError("confirmation: another generation");
  if (claim.session_id != descriptor_.session_id) return absl::PermissionDeniedError("confirmation: another session");
  if (claim.authenticated_supervisor != instance_id_) return absl::PermissionDeniedError("confirmation: another supervisor is bound");
  if (claim.identity != descriptor_.workload_identity)
    return absl::PermissionDeniedError("confirmation: the workload identity is not the admitted one");
  if (claim.resource_claims != descriptor_.resource_claims)
    return absl::PermissionDeniedError("confirmation: the resource claims are not the admitted ones");
  if (!claim.runtime_exit_terminates_workload) return absl::PermissionDeniedError("confirmation: the workload would outlive its runtime");
  if (claim.outer_fence != descriptor_.outer_fence)
    return absl::PermissionDeniedError("confirmation: the outer fence is not the admitted one");
  if (auto status = boundary::check_fence(claim.outer_fence, descriptor_.generation); !status.ok()) return status;
  if (!claim.backend_audit) return absl::FailedPreconditionError("native Linux sandbox audit evidence is incomplete");
  auto proven = boundary::properties_of(*claim.backend_audit);
  if (!proven.ok()) return proven.status();
  if (*proven != claim.properties) return absl::FailedPreconditionError("confirmation: the properties are not what the audit proves");
  return absl::OkStatus();
}

void BoundaryClient::call(boundary::Request request, std::optional<std::chrono::milliseconds> deadline, BoundaryChannel::Done done) {
  attempt(make_uuid(), std::move(request), deadline, std::move(done));
}

void BoundaryClient::attempt(std::string request_id, boundary::Request request, std::optional<std::chrono::milliseconds> deadline,
                             BoundaryChannel::Done done) {
  const auto current = channel();
  if (!current || lost()) return done(absl::UnavailableError("the boundary is lost"));
  auto shared = std::make_shared<BoundaryChannel::Done>(std::move(done));
  current->request(
      request_id, request, deadline,
      [self = shared_from_this(), request_id, request, deadline, shared](absl::StatusOr<Opened> answer) mutable {
        if (!transport_failed(answer)) return (*shared)(std::move(answer));
        self->check_link([self, request_id, request = std::move(request), deadline, shared, status = answer.status()](bool usable) mutable {
          if (!usable) return (*shared)(status);
          self->timers_->after(self->limits_.call_retry_pause, [self, request_id, request = std::move(request), deadline, shared] {
            self->attempt(request_id, request, deadline, [shared](absl::StatusOr<Opened> again) { (*shared)(std::move(again)); });
          });
        });
      });
}

void BoundaryClient::open_once(const std::string& request_id, boundary::Request request, std::optional<std::chrono::milliseconds> deadline,
                               BoundaryChannel::Done done) {
  const auto current = channel();
  if (!current || lost()) return done(absl::UnavailableError("the boundary is lost"));
  current->request(request_id, request, deadline, std::move(done));
}

absl::StatusOr<boundary::Response> BoundaryClient::call_and_wait(boundary::Request request, std::chrono::milliseconds deadline) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<boundary::Response>>>();
  auto answer = promise->get_future();
  call(std::move(request), deadline, [promise](absl::StatusOr<Opened> opened) {
    if (opened.ok()) {
      promise->set_value(std::move(opened->response));
    } else {
      promise->set_value(opened.status());
    }
  });
  return answer.get();
}

void BoundaryClient::survey(absl::AnyInvocable<void(absl::StatusOr<boundary::Snapshot>)> done) {
  std::optional<boundary::Attach> attach;
  {
    const std::lock_guard lock{mutex_};
    attach = attach_;
  }
  if (!attach) return done(absl::FailedPreconditionError("the boundary is not attached"));
  // The same attach under an id of its own: an answer made now, where the first one's would be replayed.
  call(*attach, kCallDeadline, [done = std::move(done)](absl::StatusOr<Opened> opened) mutable {
    if (!opened.ok()) return done(opened.status());
    auto attached = result_as<boundary::Attached>(opened->response);
    if (!attached.ok()) return done(attached.status());
    done(std::move(attached->snapshot));
  });
}

void BoundaryClient::on_link(std::function<void(LinkState)> changed) {
  const std::lock_guard lock{mutex_};
  changed_ = std::move(changed);
}

void BoundaryClient::stop_repairing() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  wake_.notify_all();
}

bool BoundaryClient::lost() const {
  const std::lock_guard lock{mutex_};
  return state_ == LinkState::lost;
}

void BoundaryClient::set_state(LinkState state) {
  std::function<void(LinkState)> changed;
  {
    const std::lock_guard lock{mutex_};
    if (state_ == state) return;
    state_ = state;
    changed = changed_;
  }
  if (changed) changed(state);
}

void BoundaryClient::check_link(std::function<void(bool usable)> done) {
  std::unique_lock lock{mutex_};
  if (state_ == LinkState::lost || stopping_) {
    lock.unlock();
    return done(false);
  }
  waiting_.push_back(std::move(done));
  if (std::exchange(repairing_, true)) return;
  std::thread{[self = shared_from_this()] { self->repair(); }}.detach();  // one at a time; it keeps this object until it is over
}

void BoundaryClient::repair() {
  bool usable = probe();
  if (!usable) {
    set_state(LinkState::recovering);
    const auto give_up = std::chrono::steady_clock::now() + limits_.recovery_window;
    while (!usable && std::chrono::steady_clock::now() < give_up) {
      const auto status = replay();
      usable = status.ok();
      if (usable) break;
      if (status.code() == absl::StatusCode::kPermissionDenied || status.code() == absl::StatusCode::kAborted)
        break;  // its answer is final
      std::unique_lock lock{mutex_};
      if (wake_.wait_for(lock, limits_.retry_pause, [this] { return stopping_; })) break;
    }
    set_state(usable ? LinkState::connected : LinkState::lost);
  }
  std::vector<std::function<void(bool)>> waiting;
  {
    const std::lock_guard lock{mutex_};
    waiting.swap(waiting_);
    repairing_ = false;
  }
  for (auto& done : waiting) done(usable);
}

bool BoundaryClient::probe() {
  bool confirmed;
  {
    const std::lock_guard lock{mutex_};
    confirmed = confirmed_;
  }
  if (!confirmed) return false;
  auto answer = ask(*channel(), make_uuid(), boundary::Confirm{}, kProbeDeadline);
  return answer.ok() && std::holds_alternative<boundary::Confirmed>(*answer);
}

absl::Status BoundaryClient::replay() {
  auto connected = connect();
  if (!connected.ok()) return connected.status();
  std::optional<boundary::Attach> attach;
  bool confirmed;
  {
    const std::lock_guard lock{mutex_};
    attach = attach_;
    confirmed = confirmed_;
  }
  if (!attach) return absl::OkStatus();
  auto attached = ask(**connected, attach_id_, *attach, kCallDeadline);
  if (!attached.ok()) return attached.status();
  if (auto result = result_as<boundary::Attached>(*attached); !result.ok()) {
    return still_occupied(result.status()) ? absl::UnavailableError(result.status().message()) : result.status();
  }
  if (!confirmed) return absl::OkStatus();
  auto answer = ask(**connected, make_uuid(), boundary::Confirm{}, kCallDeadline);
  if (!answer.ok()) return answer.status();
  auto result = result_as<boundary::Confirmed>(*answer);
  if (!result.ok()) return result.status();
  return verify(result->confirmation);
}

}  // namespace openshell::supervisor
