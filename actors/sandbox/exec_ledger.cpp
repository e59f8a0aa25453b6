#include "actors/sandbox/exec_ledger.hpp"

#include <fmt/format.h>

namespace openshell::sandbox {

using boundary::Error;
using boundary::ErrorKind;

namespace {
constexpr char kExpired[] = "exec request has expired; it cannot be executed again";
}

ExecLedger::Admission ExecLedger::admit(const std::string& request_id, const std::string& digest, bool pty,
                                        std::uint64_t expires_at_unix_ms, std::uint64_t now_unix_ms,
                                        const std::function<bool(const Entry&)>& attached) {
  const auto refuse = [](ErrorKind kind, std::string message) {
    Admission admission;
    admission.error = Error{kind, std::move(message)};
    return admission;
  };
  if (const auto known = by_request_.find(request_id); known != by_request_.end()) {
    const Entry& entry = by_process_.at(known->second);
    if (entry.digest != digest) return refuse(ErrorKind::denied, "exec request ID was reused with a different payload");
    if (now_unix_ms >= expires_at_unix_ms || entry.phase == Phase::reclaimed) return refuse(ErrorKind::denied, kExpired);
    if (entry.phase == Phase::failed) return refuse(ErrorKind::process, entry.error);
    if (entry.phase == Phase::reserved || attached(entry))
      return refuse(ErrorKind::unavailable, "prior exec attachment is still being released");
    return {Admission::Action::resume, {}, entry.process_id, {}};
  }
  if (now_unix_ms >= expires_at_unix_ms) return refuse(ErrorKind::denied, kExpired);
  if (by_request_.size() >= limits_.accepted) return refuse(ErrorKind::unavailable, "boundary generation exec request limit reached");
  Admission admission;
  if (retained_ >= limits_.retained) {
    for (auto& [id, entry] : by_process_) {
      if (entry.phase == Phase::exited && id != main_id() && !attached(entry)) {
        admission.reclaimed = id;
        break;
      }
    }
    if (admission.reclaimed.empty()) return refuse(ErrorKind::unavailable, "retained exec process limit reached");
    reclaim(admission.reclaimed);
  }
  admission.action = Admission::Action::start;
  admission.process_id = fmt::format("{}:exec:{}", generation_, ++next_number_);
  by_request_.emplace(request_id, admission.process_id);
  Entry& entry = by_process_[admission.process_id];
  entry.process_id = admission.process_id;
  entry.digest = digest;
  entry.pty = pty;
  ++retained_;
  return admission;
}

void ExecLedger::launched(const std::string& process_id, std::shared_ptr<ManagedProcess> process) {
  Entry& e = entry(process_id);
  e.process = std::move(process);
  if (e.phase == Phase::reserved) e.phase = e.status ? Phase::exited : Phase::running;
}

void ExecLedger::failed(const std::string& process_id, std::string error) {
  Entry& e = entry(process_id);
  e.phase = Phase::failed;
  e.error = std::move(error);
  --retained_;
}

void ExecLedger::exited(const std::string& process_id, boundary::ExitStatus status) {
  const auto it = by_process_.find(process_id);
  if (it == by_process_.end()) return;
  it->second.status = status;  // may come before `launched`: a short process is faster than its answer
  if (it->second.phase == Phase::running) it->second.phase = Phase::exited;
}

void ExecLedger::reclaim(const std::string& process_id) {
  const auto it = by_process_.find(process_id);
  if (it == by_process_.end() || it->second.phase != Phase::exited || process_id == main_id()) return;
  it->second.phase = Phase::reclaimed;
  it->second.process.reset();
  --retained_;
}

bool ExecLedger::reserve_main() {
  auto [it, fresh] = by_process_.try_emplace(main_id());
  if (fresh) it->second.process_id = main_id();
  return fresh;
}

void ExecLedger::forget_main() { by_process_.erase(main_id()); }

const ExecLedger::Entry* ExecLedger::find(const std::string& process_id) const {
  const auto it = by_process_.find(process_id);
  return it == by_process_.end() ? nullptr : &it->second;
}

std::vector<const ExecLedger::Entry*> ExecLedger::entries() const {
  std::vector<const Entry*> all;
  all.reserve(by_process_.size());
  for (const auto& [id, entry] : by_process_) all.push_back(&entry);
  return all;
}

}  // namespace openshell::sandbox
