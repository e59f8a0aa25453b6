#include "isolation/socket_address.hpp"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace openshell::isolation {

namespace {
constexpr std::array<std::uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
}

absl::StatusOr<SocketAddress> SocketAddress::from_sockaddr(std::span<const std::byte> bytes) {
  sa_family_t family = AF_UNSPEC;
  if (bytes.size() < sizeof family) return absl::InvalidArgumentError("socket address shorter than its family field");
  std::memcpy(&family, bytes.data(), sizeof family);
  SocketAddress out;
  if (family == AF_INET && bytes.size() >= sizeof(sockaddr_in)) {
    sockaddr_in in{};
    std::memcpy(&in, bytes.data(), sizeof in);
    std::memcpy(out.bytes_.data(), &in.sin_addr, 4);
    out.port_ = ntohs(in.sin_port);
    return out;
  }
  constexpr std::size_t kShortSockaddrIn6 = offsetof(sockaddr_in6, sin6_scope_id);  // RFC 2133 form, still accepted by Linux
  if (family == AF_INET6 && bytes.size() >= kShortSockaddrIn6) {
    sockaddr_in6 in6{};
    std::memcpy(&in6, bytes.data(), std::min(bytes.size(), sizeof in6));
    out.v6_ = true;
    std::memcpy(out.bytes_.data(), &in6.sin6_addr, 16);
    out.port_ = ntohs(in6.sin6_port);
    out.scope_ = bytes.size() >= sizeof in6 ? in6.sin6_scope_id : 0;
    return out;
  }
  return absl::InvalidArgumentError(absl::StrCat("socket address of family ", family, " with ", bytes.size(), " bytes is no INET address"));
}

absl::StatusOr<SocketAddress> SocketAddress::parse(std::string_view literal, std::uint16_t port) {
  const std::string text{literal};
  SocketAddress out;
  out.port_ = port;
  if (inet_pton(AF_INET, text.c_str(), out.bytes_.data()) == 1) return out;
  if (inet_pton(AF_INET6, text.c_str(), out.bytes_.data()) == 1) {
    out.v6_ = true;
    return out;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no IP address literal"));
}

bool SocketAddress::is_v4_mapped() const noexcept { return v6_ && std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes_.begin()); }

SocketAddress SocketAddress::normalized() const noexcept {
  if (!is_v4_mapped()) return *this;
  SocketAddress out;
  std::copy(bytes_.begin() + 12, bytes_.end(), out.bytes_.begin());
  out.port_ = port_;
  return out;
}

bool SocketAddress::is_loopback() const noexcept {
  const SocketAddress plain = normalized();
  if (!plain.v6_) return plain.bytes_[0] == 127;
  return std::all_of(plain.bytes_.begin(), plain.bytes_.end() - 1, [](std::uint8_t b) { return b == 0; }) && plain.bytes_[15] == 1;
}

bool SocketAddress::is_unspecified() const noexcept {
  const SocketAddress plain = normalized();
  return std::all_of(plain.bytes_.begin(), plain.bytes_.end(), [](std::uint8_t b) { return b == 0; });
}

SocketAddress SocketAddress::with_port(std::uint16_t port) const noexcept {
  SocketAddress out = *this;
  out.port_ = port;
  return out;
}

std::string SocketAddress::address_text() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(v6_ ? AF_INET6 : AF_INET, bytes_.data(), text.data(), text.size());
  return text.data();
}

std::string SocketAddress::text() const {
  return v6_ ? absl::StrCat("[", address_text(), "]:", port_) : absl::StrCat(address_text(), ":", port_);
}

socklen_t SocketAddress::to_sockaddr(sockaddr_storage& storage) const noexcept {
  storage = {};
  if (!v6_) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port_);
    std::memcpy(&in.sin_addr, bytes_.data(), 4);
    std::memcpy(&storage, &in, sizeof in);
    return sizeof in;
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port_);
  in6.sin6_scope_id = scope_;
  std::memcpy(&in6.sin6_addr, bytes_.data(), 16);
  std::memcpy(&storage, &in6, sizeof in6);
  return sizeof in6;
}

}  // namespace openshell::isolation
