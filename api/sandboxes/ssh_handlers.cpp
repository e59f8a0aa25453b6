// CreateSshSession and RevokeSshSession: durable tokens for the SSH server of a sandbox. What a token opens is in forward_handlers.cpp.
#include <chrono>

#include "actors/gateway/identity_table.hpp"
#include "actors/gateway/ssh_session_rows.hpp"
#include "api/sandboxes/plane.hpp"
#include "api/sandboxes/ssh_sessions.hpp"
#include "messages/secret.hpp"
#include "observability/log.hpp"

namespace openshell::api {
namespace {

constexpr std::string_view kType = gateway::row_types::kSshSession;

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// One CreateSshSession, from the found sandbox to the stored row.
class Creation : public std::enable_shared_from_this<Creation> {
 public:
  Creation(PlanePtr plane, std::shared_ptr<SandboxHandle> sandbox, Reply<pb::CreateSshSessionResponse> reply)
      : plane_{std::move(plane)}, sandbox_{std::move(sandbox)}, reply_{std::move(reply)} {}

  void run() {
    ask<gateway::Outcome>(
        plane_->system, sandbox_->entity,
        [self = shared_from_this()](const gateway::Outcome& usable) {
          usable.status.ok() ? self->describe() : self->reply_.fail(usable.status);
        },
        gateway::usable_atom::value);
  }

 private:
  void describe() {
    ask<gateway::Reply<pb::Sandbox>>(
        plane_->system, sandbox_->entity,
        [self = shared_from_this()](const gateway::Reply<pb::Sandbox>& found) {
          if (!found.value.ok()) return self->reply_.fail(found.value.status());
          self->answer_.set_host_key_fingerprint((*found.value)->host_key_fingerprint());
          self->store();
        },
        gateway::get_atom::value);
  }

  void store() {
    const auto identity = plane_->actors.identities->find(sandbox_->sandbox_id);
    if (!identity) return reply_.fail(absl::NotFoundError("sandbox not found"));
    records::SshSessionRecord session;
    session.set_sandbox_id(sandbox_->sandbox_id);
    session.set_runtime_generation(identity->generation);
    if (plane_->ssh.session_ttl.count() > 0) session.set_expires_at(unix_now() + plane_->ssh.session_ttl.count());
    auto token = storage::new_uuid();
    answer_.set_sandbox_id(sandbox_->sandbox_id);
    answer_.set_gateway_host(plane_->ssh.gateway_host);
    answer_.set_gateway_port(plane_->ssh.gateway_port);
    answer_.set_gateway_scheme(plane_->ssh.tls ? "https" : "http");
    if (session.expires_at() != 0) answer_.mutable_expiration_time()->set_seconds(session.expires_at());
    const auto row = to_row(session, token, sandbox_->workspace);
    answer_.set_token(std::move(token));
    plane_->store->write([row](storage::Transaction& tx) { return tx.create(row).status(); },
                         [self = shared_from_this()](const absl::Status& stored) {
                           if (!stored.ok()) return self->reply_.fail(from_storage("create SSH session", stored));
                           self->reply_.ok(self->answer_);
                         });
  }

  const PlanePtr plane_;
  const std::shared_ptr<SandboxHandle> sandbox_;
  const Reply<pb::CreateSshSessionResponse> reply_;
  pb::CreateSshSessionResponse answer_;
};

/// Marks the row revoked. NOT_FOUND for an unknown token and for one of a workspace that the caller may not use: the two must look alike.
absl::Status revoke(storage::Transaction& tx, const CallContext& ctx, const std::string& row_id) {
  const auto missing = absl::NotFoundError("SSH session not found");
  auto row = tx.get(kType, row_id);
  if (!row.ok()) return row.status();
  if (!*row) return missing;
  if (!authorize_in(tx, ctx, (*row)->workspace, WorkspaceRole::kUser).ok()) return missing;
  auto session = ssh_session_from_row(**row);
  if (!session.ok()) return session.status();
  if (session->revoked()) return absl::OkStatus();
  session->set_revoked(true);
  (*row)->payload = session->SerializeAsString();
  return tx.update(**row).status();
}

}  // namespace

void add_ssh_handlers(Router& router, const PlanePtr& plane) {
  router.unary<pb::CreateSshSessionRequest, pb::CreateSshSessionResponse>(
      "CreateSshSession", [=](Context ctx, pb::CreateSshSessionRequest request, Reply<pb::CreateSshSessionResponse> reply) {
        with_sandbox(
            plane, ctx, request.workspace_scope(), request.sandbox(), "sandbox", WorkspaceRole::kUser,
            [plane, reply](const std::shared_ptr<SandboxHandle>& found) { std::make_shared<Creation>(plane, found, reply)->run(); },
            [reply](const absl::Status& status) { reply.fail(status); });
      });
  router.unary<pb::RevokeSshSessionRequest, pb::RevokeSshSessionResponse>(
      "RevokeSshSession", [=](Context ctx, pb::RevokeSshSessionRequest request, Reply<pb::RevokeSshSessionResponse> reply) {
        if (request.token().empty()) return reply.fail(invalid_field("token", "token is required"));
        const auto row_id = ssh_session_row_id(request.token());
        plane->store->write([ctx, row_id](storage::Transaction& tx) { return revoke(tx, *ctx, row_id); },
                            [reply, allow = request.allow_missing()](const absl::Status& done) {
                              pb::RevokeSshSessionResponse answer;
                              answer.set_outcome(pb::DELETION_OUTCOME_COMPLETED);
                              if (absl::IsNotFound(done) && allow) {
                                answer.set_outcome(pb::DELETION_OUTCOME_ALREADY_ABSENT);
                              } else if (absl::IsNotFound(done)) {
                                return reply.fail(done);
                              } else if (!done.ok()) {
                                return reply.fail(from_storage("revoke SSH session", done));
                              }
                              reply.ok(answer);
                            });
      });
}

void sweep_ssh_sessions(const PlanePtr& plane) {
  plane->store->write(
      [](storage::Transaction& tx) {
        auto erased = sweep(tx, unix_now());
        if (erased.ok() && *erased > 0) log::info("SSH sessions that ended are forgotten", {{"count", std::to_string(*erased)}});
        return erased.status();
      },
      [](const absl::Status& done) {
        if (!done.ok() && !absl::IsCancelled(done)) log::warning("SSH sessions cannot be swept", {{"why", done.ToString()}});
      });
  after(plane->system, std::chrono::seconds{kSshSweepSeconds}, [weak = std::weak_ptr{plane}] {
    if (const auto alive = weak.lock()) sweep_ssh_sessions(alive);
  });
}

}  // namespace openshell::api
