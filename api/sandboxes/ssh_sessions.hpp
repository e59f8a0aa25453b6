// SSH sessions of users: a token that opens the SSH server of one start of one sandbox for a while. Rows of the store and counters; no
// actor, since nothing waits here for anything.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "ssh_session.pb.h"
#include "storage/store.hpp"

namespace openshell::api {

namespace records = openshell::internal::records::v1;

inline constexpr std::size_t kMaxConnectionsPerToken = 3;
inline constexpr std::size_t kMaxSshConnectionsPerSandbox = 20;  ///< ForwardTcp streams that came with a token
inline constexpr std::size_t kMaxForwardsPerSandbox = 128;       ///< ForwardTcp streams to a port, authorised as the caller
inline constexpr std::size_t kMaxFingerprintBytes = 256;
inline constexpr std::int64_t kSshSweepSeconds = 3'600;

/// How the row of a token is found: the SHA-256 of it, hex. Who reads the database cannot use what it finds.
std::string ssh_session_row_id(std::string_view token);

storage::Object to_row(const records::SshSessionRecord& session, std::string_view token, std::string_view workspace);
/// DATA_LOSS naming the row.
absl::StatusOr<records::SshSessionRecord> ssh_session_from_row(const storage::Object& row);

/// Whether the token opens this start of this sandbox now. UNAUTHENTICATED with the sentence for the caller; a session of another sandbox
/// is only "not valid".
absl::Status judge(const std::optional<records::SshSessionRecord>& session, std::string_view sandbox_id, std::string_view generation,
                   std::int64_t now);

/// Deletes what can never be used again; returns how many rows.
absl::StatusOr<std::uint64_t> sweep(storage::Transaction& tx, std::int64_t now);

/// True for 1..kMaxFingerprintBytes of `[A-Za-z0-9:+/=-]`.
bool check_host_key_fingerprint(std::string_view text);

/// Counts the open ForwardTcp streams. Thread-safe.
class ForwardSlots : public std::enable_shared_from_this<ForwardSlots> {
 public:
  /// One counted stream; letting go of it gives the place back.
  class Slot {
   public:
    Slot(std::shared_ptr<ForwardSlots> owner, std::string sandbox, std::string token)
        : owner_{std::move(owner)}, sandbox_{std::move(sandbox)}, token_{std::move(token)} {}
    ~Slot();
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

   private:
    const std::shared_ptr<ForwardSlots> owner_;
    const std::string sandbox_, token_;
  };

  /// RESOURCE_EXHAUSTED at a limit. `token` empty: a stream that is authorised as its caller.
  absl::StatusOr<std::shared_ptr<Slot>> take(const std::string& sandbox, const std::string& token);

 private:
  std::mutex mutex_;
  std::map<std::string, std::size_t> by_token_, with_token_, without_token_;  // row id; sandbox id
};

}  // namespace openshell::api
