#include "api/admissions.hpp"

#include "admissions.pb.h"
#include "api/errors.hpp"
#include "api/workspace_scope.hpp"
#include "observability/text.hpp"

namespace openshell::api {
namespace {

constexpr std::string_view kDone = "done";  // status column of a recorded success, so that those are found without reading all

absl::Status refused(std::string_view reason, std::string_view text) {
  return with_reason(absl::FailedPreconditionError(to_absl(text)), reason);
}

std::string owner_of(const Claim& claim) { return cat("_mutation/", claim.caller); }

absl::StatusOr<std::string> id_by_name(storage::Transaction& tx, std::string_view type, std::string_view workspace, std::string_view name) {
  auto row = tx.get_by_name(type, workspace, name);
  if (!row.ok()) return from_storage("admit request", row.status());
  return *row ? (*row)->id : std::string{};
}

/// As the handler will, and before every replay. Nothing is written down for who may not call.
absl::Status authorize_claim(storage::Transaction& tx, const Claim& claim) {
  if (claim.scope.platform_admin) return require_platform_admin(*claim.ctx);
  if (claim.scope.role_in.empty()) return absl::OkStatus();
  if (auto status = authorize_in(tx, *claim.ctx, claim.scope.role_in, claim.role.value_or(WorkspaceRole::kUser)); !status.ok())
    return status;
  return require_workspace(tx, claim.scope.role_in, WorkspaceState::kAny);
}

/// May the stored record answer this claim?
absl::Status judge(storage::Transaction& tx, const Claim& claim, const std::string& workspace_id, const Admissions::Record& record) {
  if (record.key_id() != claim.key_id) return replay_unavailable("the gateway's signing key has changed since");
  if (record.workspace_id() != workspace_id) return replay_unavailable("the workspace is another one of the same name");
  if (record.fingerprint() != claim.fingerprint)
    return refused("REQUEST_ID_PAYLOAD_MISMATCH", "request_id was already used with a different payload");
  if (record.completed_at_ms() == 0) {
    return refused("REQUEST_OUTCOME_UNCERTAIN",
                   "the request with this request_id was admitted and its success is not confirmed; look at the state before trying again "
                   "with a new request_id");
  }
  if (!claim.unary) return refused("REQUEST_STREAM_UNAVAILABLE", "the command with this request_id has ended; its output is not kept");
  if (record.unrepeatable()) return replay_unavailable("its answer is not kept");
  if (record.sandbox_id().empty()) return absl::OkStatus();
  auto sandbox = tx.get(storage::types::kSandbox, record.sandbox_id());
  if (!sandbox.ok()) return from_storage("replay request", sandbox.status());
  return *sandbox ? absl::OkStatus() : replay_unavailable("the sandbox is gone");
}

}  // namespace

absl::Status replay_unavailable(std::string_view why) {
  return refused("REQUEST_REPLAY_UNAVAILABLE", cat("the result of the request with this request_id is not available: ", why));
}

Admissions::Admissions(AdmissionOptions options)
    : options_{std::move(options)}, covered_{covered_methods()}, out_{std::make_shared<std::atomic<std::size_t>>(0)} {}

const CoveredMethod* Admissions::find(std::string_view method) const {
  const auto found = covered_.find(method);
  return found == covered_.end() ? nullptr : &found->second;
}

Admissions::Permit Admissions::permit() {
  if (out_->fetch_add(1) >= options_.detached_work) {
    out_->fetch_sub(1);
    return nullptr;
  }
  return Permit{out_.get(), [out = out_](void*) { out->fetch_sub(1); }};
}

std::int64_t Admissions::now_ms() const {
  if (options_.now_ms) return options_.now_ms();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool Admissions::expired(const Record& record) const {
  return record.completed_at_ms() != 0 && now_ms() - record.completed_at_ms() > std::chrono::milliseconds{kReplayFor}.count();
}

void Admissions::write(storage::Store::Work work, storage::Store::Done done) {
  {
    const std::lock_guard lock{mutex_};
    if (options_.store != nullptr) return options_.store->write(std::move(work), std::move(done));
  }
  done(absl::UnavailableError("the gateway is shutting down"));
}

void Admissions::close() {
  const std::lock_guard lock{mutex_};
  options_.store = nullptr;
}

void Admissions::admit(Claim claim, std::function<void(absl::StatusOr<Verdict>)> then) {
  auto verdict = std::make_shared<Verdict>();
  auto shared = std::make_shared<const Claim>(std::move(claim));
  write([this, shared, verdict](storage::Transaction& tx) { return admit_in(tx, *shared, *verdict); },
        [verdict, then = std::move(then)](const absl::Status& status) { status.ok() ? then(std::move(*verdict)) : then(status); });
}

absl::Status Admissions::admit_in(storage::Transaction& tx, const Claim& claim, Verdict& verdict) const {
  if (auto status = authorize_claim(tx, claim); !status.ok()) return status;
  Record fresh;
  fresh.set_method(claim.method);
  fresh.set_fingerprint(claim.fingerprint);
  fresh.set_key_id(claim.key_id);
  if (!claim.scope.role_in.empty()) {
    auto id = id_by_name(tx, storage::types::kWorkspace, "", claim.scope.role_in);
    if (!id.ok()) return id.status();
    fresh.set_workspace_id(*id);
  }
  if (!claim.sandbox.empty()) {
    auto id = id_by_name(tx, storage::types::kSandbox, claim.scope.workspace, claim.sandbox);
    if (!id.ok()) return id.status();
    fresh.set_sandbox_id(*id);
  }
  auto row = tx.get_by_name(storage::types::kMutationAdmission, owner_of(claim), claim.key);
  if (!row.ok()) return from_storage("admit request", row.status());
  if (!*row) return insert(tx, claim, fresh, verdict);
  auto record = std::make_shared<Record>();
  if (!record->ParseFromString((*row)->payload)) return absl::InternalError("the record of an admitted request can not be read");
  if (expired(*record)) {
    auto erased = tx.erase((*row)->type, (*row)->id, (*row)->resource_version);
    return erased.ok() ? insert(tx, claim, fresh, verdict) : from_storage("admit request", erased.status());
  }
  if (auto status = judge(tx, claim, fresh.workspace_id(), *record); !status.ok()) return status;
  verdict = std::shared_ptr<const Record>{std::move(record)};
  return absl::OkStatus();
}

absl::Status Admissions::insert(storage::Transaction& tx, const Claim& claim, const Record& record, Verdict& verdict) const {
  storage::Object object;
  object.type = storage::types::kMutationAdmission;
  object.workspace = owner_of(claim);
  object.name = claim.key;
  object.scope = object.workspace;
  object.payload = record.SerializeAsString();
  for (bool again = false;; again = true) {
    object.id = storage::new_uuid();
    auto row = tx.create_if_count_below(object, options_.rows_of_caller);
    if (row.ok()) {
      verdict = Ticket{*std::move(row)};
      return absl::OkStatus();
    }
    if (!absl::IsResourceExhausted(row.status())) return from_storage("admit request", row.status());
    auto dropped = again ? absl::StatusOr<std::size_t>{0} : drop_expired(tx, object.workspace);
    if (!dropped.ok()) return dropped.status();
    if (*dropped == 0) break;
  }
  return absl::ResourceExhaustedError(
      "caller has reached the durable mutation admission limit; unresolved requests require reconciliation");
}

absl::StatusOr<std::size_t> Admissions::drop_expired(storage::Transaction& tx, const std::string& owner) const {
  storage::ListQuery query;
  query.type = storage::types::kMutationAdmission;
  query.workspace = owner;
  query.scope = owner;
  query.status = std::string{kDone};
  query.limit = storage::kMaxPageSize;
  auto page = tx.list(query);  // one page holds all rows that a caller may have
  if (!page.ok()) return from_storage("admit request", page.status());
  std::size_t dropped = 0;
  for (const auto& row : page->objects) {
    Record record;
    if (!record.ParseFromString(row.payload) || !expired(record)) continue;
    auto erased = tx.erase(row.type, row.id, row.resource_version);
    if (!erased.ok()) return from_storage("admit request", erased.status());
    ++dropped;
  }
  return dropped;
}

void Admissions::complete(const Ticket& ticket, std::function<void(Record&)> fill, std::function<void(absl::Status)> then) {
  Record record;
  if (!record.ParseFromString(ticket.row.payload)) return then(absl::InternalError("the record of an admitted request can not be read"));
  fill(record);
  record.set_completed_at_ms(now_ms());
  auto row = std::make_shared<storage::Object>(ticket.row);
  row->payload = record.SerializeAsString();
  row->status = std::string{kDone};
  if (row->payload.size() > kMaxOutcomeBytes) {
    return then(absl::ResourceExhaustedError(
        cat("the outcome of ", record.method(), " has ", row->payload.size(), " bytes, more than ", kMaxOutcomeBytes)));
  }
  write([row](storage::Transaction& tx) { return tx.update(*row).status(); }, std::move(then));
}

}  // namespace openshell::api
