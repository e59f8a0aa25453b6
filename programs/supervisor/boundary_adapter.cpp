#include "programs/supervisor/boundary_adapter.hpp"

#include <algorithm>
#include <utility>

namespace openshell::supervisor {
namespace {

constexpr int kMaxAttempts = 3;

}  // namespace

void BoundaryAdapter::install(std::uint64_t revision, std::map<std::string, std::string> environment,
                              std::function<void(absl::StatusOr<bool>)> done) {
  attempt(revision, std::move(environment), std::move(done), kMaxAttempts);
}

void BoundaryAdapter::terminate(std::function<void(absl::Status)> done) {
  client_->stop_repairing();
  client_->open_once(make_uuid(), boundary::TerminateBoundary{}, kTerminateDeadline,
                     [done = std::move(done)](absl::StatusOr<Opened> answer) {
                       done(answer.ok() ? result_as<boundary::BoundaryTerminated>(answer->response).status() : answer.status());
                     });
}

void BoundaryAdapter::attempt(std::uint64_t revision, std::map<std::string, std::string> environment,
                              std::function<void(absl::StatusOr<bool>)> done, int left) {
  boundary::UpdateProviderEnvironment request{++generation_, revision, environment, {}};
  client_->call(request, kCallDeadline, [this, revision, environment, done, left](absl::StatusOr<Opened> answer) {
    if (!answer.ok()) return done(answer.status());
    auto updated = result_as<boundary::ProviderEnvironmentUpdated>(answer->response);
    if (!updated.ok()) return done(updated.status());
    if (updated->applied || left <= 1) return done(updated->applied);
    generation_ = std::max<std::uint64_t>(generation_, updated->generation);  // the runtime was ahead: go past it
    attempt(revision, environment, done, left - 1);
  });
}

/// What the sandbox says of its actors: untrusted, shown and used for nothing.
absl::StatusOr<ActorSources::Runtime> runtime_actors(const absl::StatusOr<Opened>& answer) {
  auto result = answer.ok() ? result_as<boundary::Introspected>(answer->response) : absl::StatusOr<boundary::Introspected>{answer.status()};
  if (!result.ok()) return result.status();
  ActorSources::Runtime out;
  out.left_out = result->left_out;
  for (auto& one : result->actors) {
    ActorSnapshot actor;
    actor.id = std::move(one.id);
    actor.parent = std::move(one.parent);
    actor.kind = std::move(one.kind);
    actor.summary = std::move(one.summary);
    actor.mailbox = one.mailbox;
    actor.waiting = one.waiting;
    actor.handled = one.handled;
    actor.failed = one.failed;
    actor.restarts = one.restarts;
    actor.oldest_ms = one.oldest_ms;
    actor.last_error = std::move(one.last_error);
    actor.rates = std::move(one.rates);
    out.actors.push_back(std::move(actor));
  }
  return out;
}

}  // namespace openshell::supervisor
