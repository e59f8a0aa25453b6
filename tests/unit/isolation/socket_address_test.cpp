#include "isolation/socket_address.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace openshell::isolation {
namespace {

SocketAddress of(const char* literal, std::uint16_t port = 443) { return *SocketAddress::parse(literal, port); }

TEST(SocketAddress, RoundTripThroughSockaddr) {
  for (const char* literal : {"203.0.113.7", "2001:db8::7", "::ffff:203.0.113.7", "0.0.0.0", "::"}) {
    sockaddr_storage storage;
    const socklen_t size = of(literal).to_sockaddr(storage);
    const auto back = SocketAddress::from_sockaddr(std::as_bytes(std::span{&storage, 1}).first(size));
    ASSERT_TRUE(back.ok()) << literal;
    EXPECT_EQ(*back, of(literal));
  }
}

TEST(SocketAddress, IS_37_MappedFormIsNormalisedForPolicies) {
  EXPECT_TRUE(of("::ffff:203.0.113.7").is_v4_mapped());
  EXPECT_EQ(of("::ffff:203.0.113.7").normalized(), of("203.0.113.7"));
  EXPECT_EQ(of("::ffff:203.0.113.7").text(), "[::ffff:203.0.113.7]:443");
  EXPECT_EQ(of("::ffff:203.0.113.7").normalized().text(), "203.0.113.7:443");
  EXPECT_FALSE(of("::203.0.113.7").is_v4_mapped()) << "the compatible form is another address";
}

TEST(SocketAddress, R_17_LoopbackInEveryForm) {
  for (const char* literal : {"127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:127.9.9.9"})
    EXPECT_TRUE(of(literal).is_loopback()) << literal;
  for (const char* literal : {"128.0.0.1", "::2", "::ffff:126.0.0.1", "0.0.0.0", "::", "::127.0.0.1"})
    EXPECT_FALSE(of(literal).is_loopback()) << literal;
  for (const char* literal : {"0.0.0.0", "::", "::ffff:0.0.0.0"}) EXPECT_TRUE(of(literal).is_unspecified()) << literal;
}

TEST(SocketAddress, RefusesWhatIsNone) {
  for (const char* text : {"", "localhost", "1.2.3", "01.2.3.4", "0x7f.0.0.1", "1.2.3.4.5", "::g", "fe80::1%lo"})
    EXPECT_FALSE(SocketAddress::parse(text, 1).ok()) << text;
  sockaddr_storage storage;
  of("203.0.113.7").to_sockaddr(storage);
  const auto bytes = std::as_bytes(std::span{&storage, 1});
  for (std::size_t size = 0; size < sizeof(sockaddr_in); ++size) EXPECT_FALSE(SocketAddress::from_sockaddr(bytes.first(size)).ok()) << size;
  EXPECT_TRUE(SocketAddress::from_sockaddr(bytes.first(sizeof(sockaddr_in))).ok());
  of("2001:db8::1").to_sockaddr(storage);
  EXPECT_FALSE(SocketAddress::from_sockaddr(bytes.first(23)).ok());
  EXPECT_TRUE(SocketAddress::from_sockaddr(bytes.first(24)).ok()) << "RFC 2133 length without scope";
}

}  // namespace
}  // namespace openshell::isolation
