// Small values that mean one thing each: ids, revisions, hosts and ports. No behaviour beyond their own validity, no CAF, no protobuf.
#pragma once

#include <absl/status/statusor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace openshell {

/// A string that names one kind of thing; two kinds do not mix. `Tag` is any type.
template <class Tag>
class StrongId {
 public:
  StrongId() = default;
  explicit StrongId(std::string text) : text_{std::move(text)} {}
  [[nodiscard]] const std::string& str() const noexcept { return text_; }
  [[nodiscard]] bool empty() const noexcept { return text_.empty(); }
  friend bool operator==(const StrongId&, const StrongId&) = default;
  friend auto operator<=>(const StrongId&, const StrongId&) = default;

 private:
  std::string text_;
};

using SandboxId = StrongId<struct SandboxIdTag>;        ///< The gateway's id of a sandbox (UUID); its name is not one.
using SessionId = StrongId<struct SessionIdTag>;        ///< One ConnectSupervisor stream, or one launch of a boundary, as the context says.
using InstanceId = StrongId<struct InstanceIdTag>;      ///< One supervisor process (UUID, canonical lower case).
using GenerationId = StrongId<struct GenerationIdTag>;  ///< One runtime generation: one start of a sandbox.
using ProcessId = StrongId<struct ProcessIdTag>;        ///< `<generation>:main:0` or `<generation>:exec:<n>`.
using DenialId = StrongId<struct DenialIdTag>;          ///< UUID that follows one denied request to its proposal.
using PolicyHash = StrongId<struct PolicyHashTag>;      ///< SHA-256 of the canonical policy, 64 lower-case hex digits.

/// A sandbox policy revision as the gateway counts them, from 1. Not an index, not a hash. 0: none.
struct Revision {
  std::uint64_t value = 0;
  friend auto operator<=>(Revision, Revision) = default;
};

/// A TCP or UDP port, 1..65535. 0 is "none" and never a destination.
struct Port {
  std::uint16_t value = 0;
  friend auto operator<=>(Port, Port) = default;
};

/// A host name in the one form in which names are compared: lower case, no trailing dot, LDH labels of 1..63 bytes, 253 bytes at most.
/// Never an IP address literal. Decimal, octal and hexadecimal spellings of addresses are refused: they are neither names nor addresses.
class Host {
 public:
  Host() = default;
  static absl::StatusOr<Host> parse(std::string_view text);
  [[nodiscard]] const std::string& str() const noexcept { return text_; }
  [[nodiscard]] bool empty() const noexcept { return text_.empty(); }
  friend bool operator==(const Host&, const Host&) = default;
  friend auto operator<=>(const Host&, const Host&) = default;

 private:
  explicit Host(std::string text) : text_{std::move(text)} {}
  std::string text_;
};

}  // namespace openshell

template <class Tag>
struct std::hash<openshell::StrongId<Tag>> {
  std::size_t operator()(const openshell::StrongId<Tag>& id) const noexcept { return std::hash<std::string>{}(id.str()); }
};
template <>
struct std::hash<openshell::Host> {
  std::size_t operator()(const openshell::Host& host) const noexcept { return std::hash<std::string>{}(host.str()); }
};
