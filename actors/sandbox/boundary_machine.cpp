#include "actors/sandbox/boundary_machine.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace openshell::sandbox {

using boundary::Error;
using boundary::ErrorKind;

namespace {

constexpr std::string_view kNilUuid = "00000000-0000-0000-0000-000000000000";

bool is_instance_id(std::string_view text) {
  if (text.size() != kNilUuid.size() || text == kNilUuid) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((kNilUuid[i] == '-') ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

std::optional<std::uint32_t> number(const std::string& text) {
  if (text.empty() || text.size() > 10 || !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  const unsigned long long n = std::stoull(text);
  return n > boundary::kMaxIdentity ? std::nullopt : std::optional{static_cast<std::uint32_t>(n)};
}

/// Operations whose result is kept, so that the same id has its effect once. Exec has its own registry.
bool is_replayed(const boundary::Request& request) {
  return std::holds_alternative<boundary::Attach>(request) || std::holds_alternative<boundary::StartAgent>(request) ||
         std::holds_alternative<boundary::UpdateProviderEnvironment>(request) || std::holds_alternative<boundary::Signal>(request) ||
         std::holds_alternative<boundary::ExecSignal>(request) || std::holds_alternative<boundary::Terminate>(request) ||
         std::holds_alternative<boundary::TerminateBoundary>(request) || std::holds_alternative<boundary::Resize>(request);
}

BoundaryMachine::Verdict answer(ErrorKind kind, std::string message) {
  return {BoundaryMachine::Action::answer, Error{kind, std::move(message)}};
}

}  // namespace

// ---- ledger
// -----------------------------------------------------------------------------------------------------------------------------------------

ReplayLedger::Known ReplayLedger::begin(const std::string& id, const std::string& digest) {
  const auto it = entries_.find(id);
  if (it != entries_.end()) {
    if (it->second.digest != digest) return Known::reused;
    return it->second.result ? Known::finished : Known::running;
  }
  evict();
  entries_.emplace(id, Entry{digest, std::nullopt});
  order_.push_back(id);
  return Known::fresh;
}

const boundary::Response* ReplayLedger::result(const std::string& id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() || !it->second.result ? nullptr : &*it->second.result;
}

void ReplayLedger::finish(const std::string& id, boundary::Response response) {
  const auto it = entries_.find(id);
  if (it != entries_.end()) it->second.result = std::move(response);
}

void ReplayLedger::abandon(const std::string& id) {
  entries_.erase(id);
  std::erase(order_, id);
}

void ReplayLedger::evict() {
  if (entries_.size() < capacity_) return;
  const auto oldest =
      std::find_if(order_.begin(), order_.end(), [this](const std::string& id) { return entries_.at(id).result.has_value(); });
  if (oldest == order_.end()) return;  // all are running: their number is bounded by the streams of a connection
  entries_.erase(*oldest);
  order_.erase(oldest);
}

// ---- requests
// ---------------------------------------------------------------------------------------------------------------------------------------

BoundaryMachine::Verdict BoundaryMachine::admit(const CallRequest& request) {
  const auto& operation = request.envelope.request;
  if (!open_.contains(request.connection)) return answer(ErrorKind::unavailable, "connection is closed");
  auto [expiry, fresh] = expiries_.try_emplace(request.connection, request.claims.expires_at);
  if (!fresh && expiry->second != 0) {
    expiry->second = request.claims.expires_at == 0 ? 0 : std::max(expiry->second, request.claims.expires_at);
  }
  if (request.mediate != std::holds_alternative<boundary::OpenMediation>(operation)) {
    return answer(ErrorKind::invalid, "open_mediation, and nothing else, is asked on Mediate");
  }
  const bool ending = link_ == Link::terminating || link_ == Link::terminal;
  if (ending && !std::holds_alternative<boundary::TerminateBoundary>(operation))
    return answer(ErrorKind::terminated, "sandbox boundary is terminated");
  if (std::holds_alternative<boundary::DiscoverPolicy>(operation) || std::holds_alternative<boundary::ResolveLinks>(operation)) {
    return {Action::execute};  // they tell of the root only
  }
  if (const auto* attach_request = std::get_if<boundary::Attach>(&operation)) return attach(request, *attach_request);
  if (std::holds_alternative<boundary::Confirm>(operation)) return confirm(request);

  if (auto early = too_early(operation)) return {Action::answer, *early};
  if (link_ == Link::frozen) return answer(ErrorKind::unavailable, "sandbox boundary is frozen until its supervisor has confirmed again");
  if (request.connection != active_) return answer(ErrorKind::denied, "control request did not come over the active supervisor connection");
  if (const auto* start = std::get_if<boundary::StartAgent>(&operation)) return start_agent(request, *start);
  if (is_replayed(operation)) return replayed(request);
  return {Action::execute};
}

std::optional<Error> BoundaryMachine::too_early(const boundary::Request& request) const {
  const std::string_view name = boundary::operation_name(request);
  const bool from_bound = std::holds_alternative<boundary::ProbeProviderFiles>(request);
  const bool from_ready =
      std::holds_alternative<boundary::StartAgent>(request) || std::holds_alternative<boundary::AcceptNetwork>(request) ||
      std::holds_alternative<boundary::OpenMediation>(request) || std::holds_alternative<boundary::Introspect>(request) ||
      std::holds_alternative<boundary::TerminateBoundary>(request);
  if (stage_ == Stage::awaiting_attach) return Error{ErrorKind::invalid, fmt::format("boundary must be attached before {}", name)};
  if (from_bound || stage_ == Stage::running) return std::nullopt;
  if (stage_ == Stage::bound) return Error{ErrorKind::invalid, fmt::format("boundary must be confirmed before {}", name)};
  if (from_ready) return std::nullopt;
  return Error{ErrorKind::invalid, "agent process has not been started"};
}

BoundaryMachine::Verdict BoundaryMachine::replayed(const CallRequest& request) {
  switch (ledger_.begin(request.envelope.request_id, request.envelope.payload_digest)) {
    case ReplayLedger::Known::fresh:
      return {Action::execute};
    case ReplayLedger::Known::running:
      return {Action::join};
    case ReplayLedger::Known::finished:
      return {Action::answer, *ledger_.result(request.envelope.request_id)};
    case ReplayLedger::Known::reused:
      break;
  }
  return answer(ErrorKind::denied, "control request ID was reused with a different payload");
}

std::optional<Error> BoundaryMachine::check_attach(const boundary::Attach& attach) const {
  if (!is_instance_id(attach.supervisor_instance_id)) return Error{ErrorKind::invalid, "supervisor_instance_id is not a canonical UUID"};
  if (!supervisor_.empty() && supervisor_ != attach.supervisor_instance_id) {
    return Error{ErrorKind::denied, "sandbox runtime is already bound to another supervisor process"};
  }
  if (attach.resource_claims != options_.claims)
    return Error{ErrorKind::denied, "attach resource claims do not match the admitted resource"};
  if (stage_ != Stage::awaiting_attach && attach.policy != policy_)
    return Error{ErrorKind::denied, "attach policy does not match the bound boundary"};
  const auto differs = [](const std::optional<std::string>& wanted, std::uint32_t own, const auto& resolve) {
    if (!wanted || wanted->empty()) return false;
    if (const auto n = number(*wanted)) return *n != own;
    return resolve(*wanted) != std::optional{own} && *wanted != "sandbox";
  };
  const auto group = [](const std::string&) -> std::optional<std::uint32_t> { return std::nullopt; };
  const auto user = [this](const std::string& name) { return options_.account_uid ? options_.account_uid(name) : std::nullopt; };
  // A named group was resolved by the driver, which alone sees the image's files before the launch; only a number can be compared here.
  const bool numeric_group = attach.policy.run_as_group && number(*attach.policy.run_as_group);
  if (differs(attach.policy.run_as_user, options_.identity.uid, user) ||
      (numeric_group && differs(attach.policy.run_as_group, options_.identity.gid, group))) {
    return Error{ErrorKind::invalid, "Selected process policy does not match the workload identity"};
  }
  return std::nullopt;
}

BoundaryMachine::Verdict BoundaryMachine::attach(const CallRequest& request, const boundary::Attach& attach) {
  if (auto error = check_attach(attach)) return {Action::answer, *error};
  const std::uint64_t epoch = request.claims.auth_epoch;
  if (epoch < active_epoch_) return answer(ErrorKind::denied, "supervisor credential epoch is stale");
  const ConnectionNumber connection = request.connection;
  Verdict verdict{Action::execute};
  if (connection != active_ && connection != staged_) {
    if (active_ != 0 && epoch == active_epoch_) {
      return answer(ErrorKind::unavailable, "another Sandbox Protocol connection with this credential epoch is still active");
    }
    if (staged_ != 0) verdict.close.push_back(staged_);
    staged_ = connection;
    verdict.staged = connection;
  }
  epochs_[connection] = std::max(epochs_[connection], epoch);
  supervisor_ = attach.supervisor_instance_id;
  if (stage_ == Stage::awaiting_attach) {
    policy_ = attach.policy;
    stage_ = Stage::bound;
  }
  // A replay on a new connection stages that connection anew and gets the first result.
  const Verdict replay = replayed(request);
  verdict.action = replay.action;
  verdict.response = replay.response;
  return verdict;
}

BoundaryMachine::Verdict BoundaryMachine::confirm(const CallRequest& request) {
  if (stage_ == Stage::awaiting_attach) return answer(ErrorKind::invalid, "boundary must be attached before confirm");
  if (request.connection != active_ && request.connection != staged_) {
    return answer(ErrorKind::denied, "confirm did not come over the active or the attached connection");
  }
  if (request.connection == active_ && request.claims.auth_epoch < active_epoch_)
    return answer(ErrorKind::denied, "supervisor credential epoch is stale");
  return {Action::execute};  // measured each time: a kept answer would prove nothing
}

BoundaryMachine::Verdict BoundaryMachine::start_agent(const CallRequest& request, const boundary::StartAgent& start) {
  if (start.sandbox_id != options_.boundary_id) return answer(ErrorKind::denied, "start_agent names another sandbox");
  if (start.policy != policy_) return answer(ErrorKind::denied, "start_agent policy does not match the bound boundary");
  if (agent_) {
    const bool same = agent_->spec == start.spec && agent_->ca_cert == start.ca_cert && agent_->ca_bundle == start.ca_bundle;
    if (!same) return answer(ErrorKind::denied, "start_agent differs from the running agent process");
  }
  Verdict verdict = replayed(request);
  if (verdict.action == Action::execute) agent_ = start;
  return verdict;
}

BoundaryMachine::Settled BoundaryMachine::finished(const CallRequest& request, boundary::Response response) {
  const auto& operation = request.envelope.request;
  const bool failed = std::holds_alternative<Error>(response);
  Settled settled{std::move(response)};
  if (std::holds_alternative<boundary::Confirm>(operation)) {
    if (failed) return settled;
    if (link_ == Link::terminating || link_ == Link::terminal) {
      settled.response = Error{ErrorKind::terminated, "sandbox boundary is terminated"};
      return settled;
    }
    if (!open_.contains(request.connection) || (request.connection != active_ && request.connection != staged_)) {
      settled.response = Error{ErrorKind::unavailable, "connection closed before it was confirmed"};
      return settled;
    }
    if (request.connection == staged_) {
      if (active_ != 0) settled.close.push_back(active_);
      active_ = staged_;
      staged_ = 0;
    }
    active_epoch_ = std::max({active_epoch_, epochs_[request.connection], request.claims.auth_epoch});
    settled.recovered = link_ != Link::connected;
    link_ = Link::connected;
    if (stage_ == Stage::bound) stage_ = Stage::ready;
    return settled;
  }
  if (std::holds_alternative<boundary::StartAgent>(operation)) {
    if (failed) {
      agent_.reset();  // nothing runs: another start may be tried
    } else {
      stage_ = Stage::running;
    }
  }
  if (is_replayed(operation)) ledger_.finish(request.envelope.request_id, settled.response);
  return settled;
}

// ---- connections
// ------------------------------------------------------------------------------------------------------------------------------------

bool BoundaryMachine::closed(ConnectionNumber connection) {
  open_.erase(connection);
  epochs_.erase(connection);
  expiries_.erase(connection);
  if (connection == staged_) staged_ = 0;
  if (connection != active_ || active_ == 0) return false;
  active_ = 0;
  if (link_ != Link::connected) return false;
  link_ = Link::frozen;
  return true;
}

std::optional<std::int64_t> BoundaryMachine::bearer_expiry(ConnectionNumber connection) const {
  const auto it = expiries_.find(connection);
  return it == expiries_.end() ? std::nullopt : std::optional{it->second};
}

std::string BoundaryMachine::summary() const {
  static constexpr const char* kStages[] = {"awaiting attach", "bound", "ready", "running"};
  static constexpr const char* kLinks[] = {"awaiting confirmation", "connected", "frozen", "terminating", "terminal"};
  return fmt::format("{}, {}, {} connections", kStages[static_cast<int>(stage_)], kLinks[static_cast<int>(link_)], open_.size());
}

}  // namespace openshell::sandbox
