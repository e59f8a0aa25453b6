#include "api/operator/actor_feed.hpp"

#include <boost/asio/post.hpp>
#include <utility>

#include "actors/gateway/relay_pipe.hpp"
#include "actors/introspection/shown_text.hpp"
#include "observability/text.hpp"

namespace openshell::api {
namespace {

constexpr std::chrono::milliseconds kInquiry{2'500};  // the supervisor itself gives up after 2 s

}  // namespace

std::string supervisor_entry(const std::string& sandbox_id) { return cat("supervisor:", sandbox_id); }
std::string sandbox_entry(const std::string& sandbox_id) { return cat("sandbox:", sandbox_id); }

void ActorFeed::run() {
  actors_wire::ToSupervisor watch;
  watch.mutable_watch()->set_sandbox_runtime(true);
  relay_->write(encode_actors_frame(watch), [] {});
  read();
}

void ActorFeed::read() {
  if (over_) return;
  relay_->read([self = shared_from_this()](
                   std::string bytes) { boost::asio::post(self->executor_, [self, bytes = std::move(bytes)] { self->received(bytes); }); },
               [self = shared_from_this()](absl::Status why) {
                 boost::asio::post(self->executor_, [self, why = std::move(why)] { self->end(why); });
               });
}

void ActorFeed::received(const std::string& bytes) {
  if (over_) return;
  if (bytes.empty()) return end(absl::UnavailableError("the supervisor ended its actor stream"));
  const auto now = std::chrono::steady_clock::now();
  auto status = in_.append(bytes);
  while (auto message = in_.next()) {
    actors_wire::ToGateway decoded;
    if (!decoded.ParseFromString(*message) || !take(decoded, now)) {
      status = absl::InvalidArgumentError("the supervisor's actor stream holds what is no message of it");
      break;
    }
  }
  if (!status.ok()) return end(status);
  read();
}

bool ActorFeed::take(const actors_wire::ToGateway& message, ActorMap::Time now) {
  if (message.has_inspected()) {
    const auto& inspected = message.inspected();
    if (inspected.request() != request_ || !asked_) return true;  // too late
    answer(inspected.error().empty() ? absl::StatusOr<ActorSnapshot>{actor_of(inspected.actor())}
                                     : absl::StatusOr<ActorSnapshot>{absl::UnavailableError(shown_text(inspected.error()))});
    return true;
  }
  if (!message.has_snapshot()) return false;
  const auto& snapshot = message.snapshot();
  if (snapshot.processes().empty()) {  // a sign of life
    for (const auto kind : {ProcessKind::supervisor, ProcessKind::sandbox}) {
      auto& processes = map_.processes();
      const auto it = processes.find(kind == ProcessKind::supervisor ? supervisor_entry(sandbox_id_) : sandbox_entry(sandbox_id_));
      if (it == processes.end()) continue;
      if (auto* shown = map_.ensure(it->first, kind, sandbox_, now)) map_.heard(*shown, shown->own_stale_ms, now);
    }
    return true;
  }
  for (const auto& process : snapshot.processes()) {
    if (process.kind() == actors_wire::Process::SUPERVISOR) {
      show(process, ProcessKind::supervisor, snapshot.epoch(), now);
    } else if (process.kind() == actors_wire::Process::SANDBOX) {
      show(process, ProcessKind::sandbox, snapshot.epoch(), now);
    } else {
      return false;
    }
  }
  return true;
}

void ActorFeed::show(const actors_wire::Process& from, ProcessKind kind, std::uint64_t epoch, ActorMap::Time now) {
  const auto id = kind == ProcessKind::supervisor ? supervisor_entry(sandbox_id_) : sandbox_entry(sandbox_id_);
  auto* shown = map_.ensure(id, kind, sandbox_, now);
  if (shown == nullptr) return;
  if (std::exchange(shown->epoch, epoch) != epoch && !shown->actors.empty()) {  // another process: nothing of the old one holds
    map_.remove(id);
    shown = map_.ensure(id, kind, sandbox_, now);
    if (shown == nullptr) return;
    shown->epoch = epoch;
  }
  ActorChanges all;
  all.whole = true;
  all.actors = actors_of(from);
  const auto beyond = static_cast<std::size_t>(from.actors_size()) - all.actors.size();
  map_.apply(*shown, all, now);
  map_.say(*shown, shown_text(from.note()), from.left_out() + static_cast<std::uint32_t>(beyond));
  map_.heard(*shown, from.stale_ms(), now);
}

void ActorFeed::inspect(const std::string& actor, Then then) {
  if (over_ || asked_) return then(absl::ResourceExhaustedError("another actor of this supervisor is being asked"));
  asked_ = std::move(then);
  asked_at_ = std::chrono::steady_clock::now();
  actors_wire::ToSupervisor message;
  auto& inspect = *message.mutable_inspect();
  inspect.set_request(++request_);
  inspect.set_process(actors_wire::Process::SUPERVISOR);
  inspect.set_actor(actor.substr(0, kMaxShownId));
  relay_->write(encode_actors_frame(message), [] {});
}

void ActorFeed::sweep(ActorMap::Time now) {
  if (asked_ && now - asked_at_ >= kInquiry) answer(absl::DeadlineExceededError("the supervisor does not answer"));
}

void ActorFeed::answer(absl::StatusOr<ActorSnapshot> result) {
  if (auto then = std::exchange(asked_, {})) then(std::move(result));
}

void ActorFeed::close(const std::string& why) {
  if (std::exchange(over_, true)) return;
  ended_ = {};
  answer(absl::UnavailableError("the supervisor is not watched any more"));
  relay_->abort(absl::CancelledError(why));
}

void ActorFeed::end(absl::Status why) {
  if (std::exchange(over_, true)) return;
  answer(absl::UnavailableError("the supervisor's actor stream ended"));
  relay_->abort(absl::CancelledError("the actor stream is over"));
  if (auto ended = std::exchange(ended_, {})) ended(std::move(why));
}

}  // namespace openshell::api
