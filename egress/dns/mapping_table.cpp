#include "egress/dns/mapping_table.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "egress/uuid.hpp"

namespace openshell::egress::dns {
namespace {

constexpr std::uint32_t kFirstFree = 3;  // the parent itself, policy.local and proxy.local; skipped in every window

std::uint32_t value_of(const IpAddress& address) { return address.v4_value(); }

}  // namespace

MappingTable::MappingTable(std::uint64_t epoch)
    : window_{kParent + static_cast<std::uint32_t>(epoch % kWindows) * kWindowAddresses}, next_allowed_{kFirstFree} {}

bool MappingTable::is_synthetic(const IpAddress& address) noexcept {
  if (address.is_v4()) return (address.v4_value() & 0xFFFE0000) == kParent;
  constexpr std::array<std::uint8_t, 6> kV6Parent = {0xfd, 0x23, 0x6f, 0x70, 0x65, 0x6e};
  if (std::equal(kV6Parent.begin(), kV6Parent.end(), address.bytes().begin())) return true;
  const auto plain = address.unmapped();
  return plain.is_v4() && is_synthetic(plain);
}

absl::StatusOr<const Mapping*> MappingTable::publish(std::string_view name, std::string_view identity, std::vector<Contract> contracts,
                                                     std::chrono::seconds ttl, std::uint64_t generation, Clock::time_point now) {
  std::string key{name};
  key.push_back('\0');
  key.append(identity);
  const auto known = by_key_.find(key);
  std::uint32_t address = 0;
  if (known != by_key_.end()) {
    address = known->second;
    if (by_address_.at(address).mapping.generation > generation) return absl::AbortedError("a newer policy generation owns this mapping");
  } else {
    if (next_allowed_ >= kHalf) return absl::ResourceExhaustedError("all synthetic addresses of this boot are used");
    address = window_ + next_allowed_++;
    by_key_.emplace(std::move(key), address);
  }
  Entry& entry = by_address_[address];
  entry.identity = identity;
  Mapping& mapping = entry.mapping;
  mapping.name = name;
  mapping.synthetic = IpAddress::v4(address);
  mapping.mapping_id = new_uuid();
  mapping.generation = generation;
  mapping.contracts = std::move(contracts);
  mapping.expires = now + std::clamp(ttl, kMinTtl, kMaxTtl);
  mapping.stale = false;
  return &mapping;
}

std::optional<IpAddress> MappingTable::deny(std::string_view name, Clock::time_point now) {
  if (const auto known = denied_.find(name); known != denied_.end()) {
    known->second.keep_until = now + kDeniedKept;
    return known->second.address;
  }
  if (denied_.size() >= kMaxDenied) sweep(now);
  if (denied_.size() >= kMaxDenied) {
    ++denied_table_full_;
    return std::nullopt;
  }
  // The table is smaller than the half, so a free address comes within kMaxDenied steps.
  std::uint32_t address = 0;
  do {
    address = window_ + kHalf + next_denied_;
    next_denied_ = (next_denied_ + 1) % kHalf;
  } while (denied_by_address_.contains(address));
  denied_.emplace(std::string{name}, Denied{IpAddress::v4(address), now + kDeniedKept});
  denied_by_address_.emplace(address, std::string{name});
  return IpAddress::v4(address);
}

Lookup MappingTable::find(const IpAddress& address, Clock::time_point now) const {
  if (!is_synthetic(address)) return LookupFailure::kNotSynthetic;
  const auto plain = address.unmapped();
  if (!plain.is_v4()) return LookupFailure::kMissing;
  const auto value = value_of(plain);
  if (value == kParent + 1 || value == kParent + 2) return LookupFailure::kReserved;
  if (const auto denied = denied_by_address_.find(value); denied != denied_by_address_.end()) {
    return denied_.at(denied->second).keep_until > now ? Lookup{DeniedName{denied->second}} : Lookup{LookupFailure::kExpired};
  }
  const auto entry = by_address_.find(value);
  if (entry == by_address_.end()) return LookupFailure::kMissing;
  const Mapping& mapping = entry->second.mapping;
  if (mapping.stale) return LookupFailure::kStale;
  if (std::max(mapping.expires, mapping.last_used) + kGrace <= now) return LookupFailure::kExpired;
  return &mapping;
}

bool MappingTable::note_use(const IpAddress& address, Clock::time_point now) {
  const auto plain = address.unmapped();
  if (!plain.is_v4()) return false;
  if (const auto denied = denied_by_address_.find(value_of(plain)); denied != denied_by_address_.end()) {
    auto& until = denied_.at(denied->second).keep_until;
    until = std::max(until, now + kDeniedKept);
    return false;
  }
  const auto entry = by_address_.find(value_of(plain));
  if (entry == by_address_.end()) return false;
  entry->second.mapping.last_used = now;
  return entry->second.mapping.expires <= now;
}

void MappingTable::rejudge(std::uint64_t generation,
                           const std::function<std::optional<std::vector<Contract>>(const Mapping&, std::string_view identity)>& judge) {
  for (auto& [address, entry] : by_address_) {
    auto contracts = judge(entry.mapping, entry.identity);
    entry.mapping.stale = !contracts;
    if (!contracts) continue;
    entry.mapping.contracts = std::move(*contracts);
    entry.mapping.generation = generation;
  }
}

void MappingTable::sweep(Clock::time_point now) {
  for (auto it = denied_.begin(); it != denied_.end();) {
    if (it->second.keep_until > now) {
      ++it;
      continue;
    }
    denied_by_address_.erase(value_of(it->second.address));
    it = denied_.erase(it);
  }
}

bool MappingTable::take_high_water() noexcept {
  if (high_water_ || next_allowed_ < kHalf / 5 * 4) return false;
  high_water_ = true;
  return true;
}

namespace {

constexpr std::size_t kEpochFileBytes = 21;  // a decimal u64 and a line feed

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3;
  return hash;
}

class Fd {
 public:
  explicit Fd(int fd) : fd_{fd} {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

absl::StatusOr<std::uint64_t> previous_epoch(const std::string& path, std::string_view sandbox_id) {
  const Fd file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  if (file.get() < 0) {
    if (errno == ENOENT) return sandbox_id.empty() ? 0 : fnv1a(sandbox_id);
    return absl::FailedPreconditionError(fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  }
  char text[kEpochFileBytes + 1] = {};
  const auto count = read(file.get(), text, sizeof text);
  std::string_view digits{text, static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
  if (digits.ends_with('\n')) digits.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) {
    return absl::FailedPreconditionError(fmt::format("policy DNS allocation epoch is invalid: {}", path));
  }
  return value;
}

absl::Status write_durably(const std::string& state_dir, const std::string& path, std::uint64_t value) {
  const std::string temporary = path + ".new";
  const std::string text = std::to_string(value) + "\n";
  {
    const Fd file{open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (file.get() < 0 || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) || fsync(file.get()) != 0) {
      return absl::FailedPreconditionError(fmt::format("{} cannot be written: {}", temporary, std::strerror(errno)));
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0)
    return absl::FailedPreconditionError(fmt::format("{} cannot be replaced: {}", path, std::strerror(errno)));
  const Fd directory{open(state_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (directory.get() < 0 || fsync(directory.get()) != 0) {
    return absl::FailedPreconditionError(fmt::format("{} cannot be synced: {}", state_dir, std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::uint64_t> next_epoch(const std::string& state_dir, std::string_view sandbox_id) {
  if (state_dir.empty()) return 0;
  const std::string path = state_dir + "/policy-dns-epoch";
  const auto previous = previous_epoch(path, sandbox_id);
  if (!previous.ok()) return previous;
  const std::uint64_t next = *previous + 1;
  if (auto status = write_durably(state_dir, path, next); !status.ok()) return status;
  return next;
}

}  // namespace openshell::egress::dns
