// At most once: a request that carries a `request_id` is written down before its work begins, and its outcome after. The same id again gets
// the recorded outcome and starts nothing; where no success was recorded it is told so, for ever. The record outlives the process.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "api/authorization.hpp"
#include "api/request_identity.hpp"
#include "api/service.hpp"
#include "storage/store.hpp"

namespace openshell::internal::admissions::v1 {
class AdmissionRecord;
}

namespace openshell::api {

constexpr std::uint64_t kMaxAdmissionsOfCaller = 1000;  ///< rows, confirmed and unresolved ones
constexpr std::size_t kMaxDetachedWork = 64;            ///< admitted requests that run at the same time
constexpr std::size_t kMaxOutcomeBytes = 64U << 10;     ///< of a record; a larger outcome is not recorded
constexpr std::chrono::hours kReplayFor{24};            ///< from the recorded success; a replay does not extend it

/// A request to admit.
struct Claim {
  Context ctx;
  std::string method;
  bool unary = true;
  std::optional<WorkspaceRole> role;  ///< asked for in `scope.role_in`
  RequestScope scope;
  std::string sandbox;      ///< name that is resolved at admission and has to be there at a replay; empty: none
  std::string caller;       ///< caller_hash()
  std::string key;          ///< admission_key()
  std::string fingerprint;  ///< fingerprint()
  std::string key_id;       ///< of the FingerprintKey; empty: none
};

struct AdmissionOptions {
  storage::Store* store = nullptr;
  std::optional<FingerprintKey> key;  ///< absent: what may hold secrets can not be admitted
  std::size_t detached_work = kMaxDetachedWork;
  std::uint64_t rows_of_caller = kMaxAdmissionsOfCaller;
  std::function<std::int64_t()> now_ms;  ///< Unix milliseconds; empty: the system clock
};

/// Thread-safe.
class Admissions {
 public:
  using Record = openshell::internal::admissions::v1::AdmissionRecord;
  /// The row of an admitted request; whoever has it runs the work, once.
  struct Ticket {
    storage::Object row;
  };
  using Verdict = std::variant<Ticket, std::shared_ptr<const Record>>;
  using Permit = std::shared_ptr<void>;  ///< given back when the last copy goes

  explicit Admissions(AdmissionOptions options);

  /// Null: the method has no request_id.
  [[nodiscard]] const CoveredMethod* find(std::string_view method) const;
  [[nodiscard]] const FingerprintKey* key() const { return options_.key ? &*options_.key : nullptr; }
  /// Null: kMaxDetachedWork are out.
  [[nodiscard]] Permit permit();

  /// Authorises, then admits or finds the earlier outcome, in one transaction. A Ticket: do the work. A record: a success to repeat.
  /// FAILED_PRECONDITION REQUEST_ID_PAYLOAD_MISMATCH, REQUEST_OUTCOME_UNCERTAIN, REQUEST_REPLAY_UNAVAILABLE, REQUEST_STREAM_UNAVAILABLE;
  /// RESOURCE_EXHAUSTED where the caller holds too many; what the authorisation says.
  void admit(Claim claim, std::function<void(absl::StatusOr<Verdict>)> then);
  /// Records the success. Not OK: nothing is recorded, and the request stays unresolved.
  void complete(const Ticket& ticket, std::function<void(Record&)> fill, std::function<void(absl::Status)> then);
  /// The store goes: nothing is admitted or recorded any more.
  void close();

  [[nodiscard]] std::int64_t now_ms() const;

 private:
  absl::Status admit_in(storage::Transaction& tx, const Claim& claim, Verdict& verdict) const;
  absl::Status insert(storage::Transaction& tx, const Claim& claim, const Record& record, Verdict& verdict) const;
  absl::StatusOr<std::size_t> drop_expired(storage::Transaction& tx, const std::string& owner) const;
  [[nodiscard]] bool expired(const Record& record) const;
  void write(storage::Store::Work work, storage::Store::Done done);

  AdmissionOptions options_;
  std::map<std::string, CoveredMethod, std::less<>> covered_;
  std::shared_ptr<std::atomic<std::size_t>> out_;
  std::mutex mutex_;  // of options_.store
};

/// FAILED_PRECONDITION REQUEST_REPLAY_UNAVAILABLE.
absl::Status replay_unavailable(std::string_view why);

}  // namespace openshell::api
