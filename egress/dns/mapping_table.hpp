// Synthetic addresses: what a workload gets for a name, and what the name's address stands for when it connects (NET rows).
// A plain class driven by the caller's clock; no I/O, one thread.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "egress/ip_address.hpp"
#include "messages/values.hpp"

namespace openshell::egress::dns {

using Clock = std::chrono::steady_clock;

/// What one endpoint grants for a name, with the real addresses that were acceptable to it when the name was asked.
struct Contract {
  std::string policy;
  std::uint32_t endpoint_index = 0;
  Port port;
  std::vector<IpAddress> pinned;
};

struct Mapping {
  std::string name;
  IpAddress synthetic;
  std::string mapping_id;           ///< UUID, new with every publication
  std::uint64_t generation = 0;     ///< policy generation it was made or re-judged for
  std::vector<Contract> contracts;  ///< sorted by policy, endpoint, port
  Clock::time_point expires;        ///< of the answer that was given last
  Clock::time_point last_used;      ///< by an allowed connect; the epoch before the first
  bool stale = false;               ///< a newer policy does not grant it as it was
};

enum class LookupFailure : std::uint8_t { kNotSynthetic, kReserved, kMissing, kExpired, kStale };

struct DeniedName {
  std::string name;
};

/// A mapping is borrowed until the next change of the table.
using Lookup = std::variant<const Mapping*, DeniedName, LookupFailure>;

class MappingTable {
 public:
  static constexpr std::uint32_t kWindowAddresses = 8192;  ///< a /19 of 198.18.0.0/15 per epoch: lower half allowed, upper half denied
  static constexpr std::uint32_t kHalf = kWindowAddresses / 2;
  static constexpr std::uint32_t kWindows = 16;
  static constexpr std::size_t kMaxDenied = 1024;         ///< live denied names
  static constexpr std::chrono::seconds kDeniedTtl{5};    ///< on the wire
  static constexpr std::chrono::seconds kDeniedKept{30};  ///< after the last question, so that a late connect is still named
  static constexpr std::chrono::seconds kMinTtl{1};
  static constexpr std::chrono::seconds kMaxTtl{30};
  /// How long an address still leads somewhere after its TTL or its last use, whichever is later: resolvers and connection pools of
  /// programs keep addresses for minutes (libcurl 60 s, a JVM 30 s or more) whatever the TTL says.
  static constexpr std::chrono::seconds kGrace{600};

  explicit MappingTable(std::uint64_t epoch);

  static IpAddress policy_local() noexcept { return IpAddress::v4(kParent + 1); }
  static IpAddress proxy_local() noexcept { return IpAddress::v4(kParent + 2); }

  /// Equal `identity` (what the endpoints grant) keeps the address of a name; another one gets a new address. Addresses are never used
  /// twice. RESOURCE_EXHAUSTED: the half is used up. `ttl` is clamped.
  absl::StatusOr<const Mapping*> publish(std::string_view name, std::string_view identity, std::vector<Contract> contracts,
                                         std::chrono::seconds ttl, std::uint64_t generation, Clock::time_point now);

  /// An address that only gives the connect that follows a name. nullopt: the table is full of live names (counted).
  std::optional<IpAddress> deny(std::string_view name, Clock::time_point now);

  [[nodiscard]] Lookup find(const IpAddress& address, Clock::time_point now) const;
  /// A connect to `address` was allowed, or named by its denial: what it stands for is kept for longer. True: its TTL is over, so its real
  /// addresses should be asked for anew.
  bool note_use(const IpAddress& address, Clock::time_point now);

  /// A new policy generation. `judge` returns the contracts that the mapping has under it (with addresses out of those it had), or nullopt
  /// where its identity changed or nothing acceptable is left.
  void rejudge(std::uint64_t generation,
               const std::function<std::optional<std::vector<Contract>>(const Mapping&, std::string_view identity)>& judge);

  /// Forgets denied names whose time is over. Called before a denied name is refused for want of room, and now and then.
  void sweep(Clock::time_point now);

  [[nodiscard]] std::size_t allowed_count() const noexcept { return by_address_.size(); }
  [[nodiscard]] std::size_t denied_count() const noexcept { return denied_.size(); }
  [[nodiscard]] std::uint64_t denied_table_full() const noexcept { return denied_table_full_; }
  /// True once, when four fifths of the allowed half are used.
  [[nodiscard]] bool take_high_water() noexcept;
  [[nodiscard]] static bool is_synthetic(const IpAddress& address) noexcept;

 private:
  static constexpr std::uint32_t kParent = 0xC6120000;  // 198.18.0.0/15
  struct Entry {
    Mapping mapping;
    std::string identity;
  };
  struct Denied {
    IpAddress address;
    Clock::time_point keep_until;
  };

  std::uint32_t window_;           // first address of this epoch's window
  std::uint32_t next_allowed_;     // offset into the window
  std::uint32_t next_denied_ = 0;  // offset into the upper half, taken in turn
  bool high_water_ = false;
  std::unordered_map<std::string, std::uint32_t> by_key_;  // name NUL identity
  std::unordered_map<std::uint32_t, Entry> by_address_;
  std::map<std::string, Denied, std::less<>> denied_;
  std::unordered_map<std::uint32_t, std::string> denied_by_address_;
  std::uint64_t denied_table_full_ = 0;
};

/// The next boot epoch of this sandbox: previous + 1, kept in `<state_dir>/policy-dns-epoch`, seeded from the sandbox id, written so that a
/// crash leaves the old or the new number. Empty directory: 0, nothing is kept. FAILED_PRECONDITION: the file is corrupt.
absl::StatusOr<std::uint64_t> next_epoch(const std::string& state_dir, std::string_view sandbox_id);

}  // namespace openshell::egress::dns
