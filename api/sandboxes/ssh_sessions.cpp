#include "api/sandboxes/ssh_sessions.hpp"

#include <absl/strings/escaping.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "actors/gateway/ssh_session_rows.hpp"
#include "observability/text.hpp"
#include "storage/each_row.hpp"

namespace openshell::api {
namespace {

constexpr std::string_view kType = gateway::row_types::kSshSession;

void give_back(std::map<std::string, std::size_t>& counts, const std::string& key) {
  const auto found = counts.find(key);
  if (found != counts.end() && --found->second == 0) counts.erase(found);
}

}  // namespace

std::string ssh_session_row_id(std::string_view token) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

storage::Object to_row(const records::SshSessionRecord& session, std::string_view token, std::string_view workspace) {
  storage::Object row;
  row.type = std::string{kType};
  row.id = ssh_session_row_id(token);
  row.workspace = std::string{workspace};
  row.scope = session.sandbox_id();
  row.payload = session.SerializeAsString();
  return row;
}

absl::StatusOr<records::SshSessionRecord> ssh_session_from_row(const storage::Object& row) {
  records::SshSessionRecord session;
  if (!session.ParseFromString(row.payload)) return absl::DataLossError(cat("ssh_session ", row.id, " does not decode"));
  return session;
}

absl::Status judge(const std::optional<records::SshSessionRecord>& session, std::string_view sandbox_id, std::string_view generation,
                   std::int64_t now) {
  if (!session) return absl::UnauthenticatedError("SSH session token not found");
  if (session->revoked() || session->sandbox_id() != sandbox_id || session->runtime_generation() != generation || generation.empty())
    return absl::UnauthenticatedError("SSH session token is not valid");
  if (session->expires_at() != 0 && now > session->expires_at()) return absl::UnauthenticatedError("SSH session token expired");
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> sweep(storage::Transaction& tx, std::int64_t now) {
  storage::ListQuery query;
  query.type = std::string{kType};
  std::uint64_t erased = 0;
  auto status = storage::each_row(tx, std::move(query), [&](const storage::Object& row) {
    const auto session = ssh_session_from_row(row);
    const bool useless = !session.ok() || session->revoked() || (session->expires_at() != 0 && now > session->expires_at());
    if (!useless) return absl::OkStatus();
    ++erased;
    return tx.erase(kType, row.id).status();
  });
  if (!status.ok()) return status;
  return erased;
}

bool check_host_key_fingerprint(std::string_view text) {
  return !text.empty() && text.size() <= kMaxFingerprintBytes && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view{":+/=-"}.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

absl::StatusOr<std::shared_ptr<ForwardSlots::Slot>> ForwardSlots::take(const std::string& sandbox, const std::string& token) {
  const std::lock_guard lock{mutex_};
  if (token.empty()) {
    auto& open = without_token_[sandbox];
    if (open >= kMaxForwardsPerSandbox) return absl::ResourceExhaustedError("sandbox forward limit reached");
    ++open;
  } else {
    const auto own = by_token_.find(token), all = with_token_.find(sandbox);
    if (own != by_token_.end() && own->second >= kMaxConnectionsPerToken)
      return absl::ResourceExhaustedError("SSH session connection limit reached");
    if (all != with_token_.end() && all->second >= kMaxSshConnectionsPerSandbox)
      return absl::ResourceExhaustedError("sandbox SSH connection limit reached");
    ++by_token_[token];
    ++with_token_[sandbox];
  }
  return std::make_shared<Slot>(shared_from_this(), sandbox, token);
}

ForwardSlots::Slot::~Slot() {
  const std::lock_guard lock{owner_->mutex_};
  give_back(token_.empty() ? owner_->without_token_ : owner_->with_token_, sandbox_);
  if (!token_.empty()) give_back(owner_->by_token_, token_);
}

}  // namespace openshell::api
