#include "storage/store.hpp"

#include <fcntl.h>
#include <sys/random.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "observability/text.hpp"
#include "storage/sqlite_store.hpp"
#include "storage/status.hpp"

namespace openshell::storage {
namespace {

constexpr absl::string_view kConflictUrl = "openshell.internal/resource_version";
constexpr absl::string_view kConstraintUrl = "openshell.internal/constraint";

}  // namespace

absl::Status conflict_error(std::string_view type, std::string_view id, std::uint64_t current) {
  absl::Status status = absl::AbortedError(cat(type, " ", id, " was modified concurrently (current resource_version: ",
                                               current == 0 ? std::string{"none"} : std::to_string(current), ")"));
  status.SetPayload(kConflictUrl, absl::Cord{std::to_string(current)});
  return status;
}

absl::Status unique_error(std::string_view type, std::string_view constraint) {
  absl::Status status = absl::AlreadyExistsError(cat(type, " already exists (", constraint, ")"));
  status.SetPayload(kConstraintUrl, absl::Cord{to_absl(constraint)});
  return status;
}

std::optional<std::uint64_t> conflict_version(const absl::Status& status) {
  const auto payload = status.GetPayload(kConflictUrl);
  if (!payload) return std::nullopt;
  return std::strtoull(std::string{*payload}.c_str(), nullptr, 10);
}

std::string violated_constraint(const absl::Status& status) {
  const auto payload = status.GetPayload(kConstraintUrl);
  return payload ? std::string{*payload} : std::string{};
}

absl::StatusOr<std::unique_ptr<Store>> open_store(std::string_view url) {
  constexpr std::string_view kScheme = "sqlite:";
  if (!url.starts_with(kScheme)) {
    // Whatever follows the scheme may hold a password.
    const auto end = url.find(':');
    return absl::InvalidArgumentError(
        cat("unsupported database URL scheme: ", end == std::string_view::npos ? "(none)" : url.substr(0, end + 1)));
  }
  url.remove_prefix(kScheme.size());
  if (url.starts_with("//")) url.remove_prefix(2);
  if (url.empty()) return absl::InvalidArgumentError("database URL names no file");
  if (url == ":memory:" || url.find("mode=memory") != std::string_view::npos) return open_sqlite("");
  return open_sqlite(std::string{url.substr(0, url.find('?'))});
}

std::string new_uuid() {
  std::array<unsigned char, 16> bytes{};
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      std::abort();  // no kernel we run on fails here; ids that repeat would be worse than no process
    }
    filled += static_cast<std::size_t>(got);
  }
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(36);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kHex[bytes[i] >> 4];
    text += kHex[bytes[i] & 0x0f];
  }
  return text;
}

}  // namespace openshell::storage
