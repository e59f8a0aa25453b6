#include <gmock/gmock.h>

#include <fmt/format.h>

#include "egress/destination/address_rules.hpp"
#include "egress/events.hpp"
#include "egress/identity/binary_pins.hpp"
#include "policy/matcher.hpp"

namespace openshell::egress {
namespace {

using Mode = DestinationPlan::Mode;

IpAddress ip(const char* text) { return *IpAddress::parse(text); }

TEST(AddressRules, NET_Classes) {
  for (const char* blocked : {"127.0.0.1", "127.255.0.1", "169.254.169.254", "0.0.0.0", "::1", "::", "fe80::1", "::ffff:127.0.0.1",
                              "::ffff:169.254.1.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1"}) {
    EXPECT_EQ(classify_address(ip(blocked)), AddressClass::kAlwaysBlocked) << blocked;
  }
  for (const char* internal : {"10.0.0.1",    "172.16.0.1",     "172.31.255.255", "192.168.1.1",     "100.64.0.1",     "192.0.0.1",
                               "192.0.2.1",   "198.51.100.1",   "203.0.113.1",    "198.18.0.1",      "198.19.9.9",     "255.255.255.255",
                               "224.0.0.1",   "240.0.0.1",      "0.1.2.3",        "fc00::1",         "fd00::1",        "ff02::1",
                               "2001:db8::1", "2002:102:304::", "::1.2.3.4",      "::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1"}) {
    EXPECT_EQ(classify_address(ip(internal)), AddressClass::kInternal) << internal;
  }
  for (const char* open : {"1.1.1.1", "172.32.0.1", "100.128.0.1", "198.20.0.1", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808"}) {
    EXPECT_EQ(classify_address(ip(open)), AddressClass::kPublic) << open;
  }
}

TEST(AddressRules, NET_AddressTextIsStrict) {
  for (const char* bad : {"0x7f.1", "010.0.0.1", "1", "1.2.3", "1.2.3.4.5", "127.1", "[::1]", "::1%lo", "", "256.1.1.1", "1.2.3.04"}) {
    EXPECT_FALSE(IpAddress::parse(bad).ok()) << bad;
  }
  EXPECT_TRUE(IpNetwork::parse("10.0.0.0/8")->contains(ip("10.255.0.1")));
  EXPECT_TRUE(IpNetwork::parse("10.0.0.0/8")->contains(ip("::ffff:10.1.1.1")));
  EXPECT_FALSE(IpNetwork::parse("10.0.0.0/9")->contains(ip("10.128.0.1")));
  EXPECT_FALSE(IpNetwork::parse("10.0.0.0/33").ok());
}

bool accepts(const DestinationPlan& plan, const char* address, std::uint16_t port = 443) {
  return !check_address(plan, "h.test", Port{port}, ip(address));
}

TEST(AddressRules, NET_ModesAndTheirRefusals) {
  DestinationPlan plan;
  EXPECT_TRUE(accepts(plan, "1.1.1.1", 6443));
  EXPECT_FALSE(accepts(plan, "10.0.0.1"));
  plan.mode = Mode::kDeclaredHost;
  EXPECT_TRUE(accepts(plan, "10.0.0.1"));
  EXPECT_FALSE(accepts(plan, "10.0.0.1", 6443));
  EXPECT_FALSE(accepts(plan, "127.0.0.1"));
  EXPECT_FALSE(accepts(plan, "169.254.169.254"));
  policy::Endpoint endpoint;
  endpoint.allowed_ips = {*policy::parse_address_block("10.4.0.0/24")};
  plan = {Mode::kAllowedIps, &endpoint, {}};
  EXPECT_TRUE(accepts(plan, "10.4.0.9"));
  EXPECT_FALSE(accepts(plan, "10.9.9.9"));
  EXPECT_FALSE(accepts(plan, "1.1.1.1"));
  EXPECT_EQ(filter_addresses(plan, "h.test", Port{443}, {ip("10.4.0.9"), ip("10.9.9.9"), ip("10.4.0.9")}).size(), 1U);
  plan = {Mode::kGatewayAlias, nullptr, ip("127.0.0.1")};
  EXPECT_TRUE(accepts(plan, "127.0.0.1", 9090));
  EXPECT_FALSE(accepts(plan, "127.0.0.2", 9090));
  EXPECT_FALSE(accepts(plan, "127.0.0.1", 6443));
}

TEST(AddressRules, NET_AliasesLeadToTheGatewayAndNowhereElse) {
  EXPECT_EQ(plan_destination("host.openshell.internal", nullptr, true, ip("127.0.0.1"))->mode, Mode::kGatewayAlias);
  EXPECT_FALSE(plan_destination("host.openshell.internal", nullptr, true, std::nullopt));
  EXPECT_FALSE(plan_destination("host.openshell.internal", nullptr, true, ip("169.254.169.254")));
  EXPECT_EQ(plan_destination("localhost.test", nullptr, false, ip("127.0.0.1"))->mode, Mode::kPublicOnly);
}

ResolvedIdentity chain(const std::string& path, char digest = 'a') {
  return {{path, std::string(64, digest)}, {{"/bin/sh", std::string(64, 'b')}}, {}};
}

// BIN-15, BIN-17, BIN-18
TEST(BinaryPins, BIN_FirstUseIsForEver) {
  BinaryPins pins;
  EXPECT_TRUE(pins.verify(chain("/bin/a")).ok());
  EXPECT_TRUE(pins.verify(chain("/bin/a")).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(pins.verify(chain("/bin/a", 'c'))));
  EXPECT_TRUE(pins.verify(chain("/bin/a")).ok());
  EXPECT_EQ(pins.size(), 2U);
  EXPECT_EQ(pins.verify(chain("/bin/a", 'c')).message().find("cccc"), absl::string_view::npos);
}

// BIN-14
TEST(BinaryPins, BIN_AnythingUnknownPinsNothing) {
  BinaryPins pins;
  EXPECT_FALSE(pins.verify(FailedIdentity{"gone"}).ok());
  EXPECT_FALSE(pins.verify(chain("relative")).ok());
  EXPECT_FALSE(pins.verify(chain("")).ok());
  auto missing = chain("/bin/a");
  missing.ancestors[0].sha256.clear();
  EXPECT_FALSE(pins.verify(missing).ok());
  auto conflict = chain("/bin/a");
  conflict.ancestors.push_back({"/bin/a", std::string(64, 'd')});
  EXPECT_FALSE(pins.verify(conflict).ok());
  EXPECT_EQ(pins.size(), 0U);
}

TEST(BinaryPins, BIN_CapacityIsRefusedNotForgotten) {
  BinaryPins pins;
  for (std::size_t i = 0; i + 1 < BinaryPins::kMaxPaths; ++i) ASSERT_TRUE(pins.verify(chain(fmt::format("/bin/{}", i))).ok());
  EXPECT_EQ(pins.size(), BinaryPins::kMaxPaths);
  EXPECT_TRUE(absl::IsResourceExhausted(pins.verify(chain("/bin/more"))));
  EXPECT_TRUE(pins.verify(chain("/bin/0")).ok());
}

TEST(EventQueue, WakesOnceAndDropsTheOldest) {  // TS-28
  int wakes = 0;
  EventQueue queue{{2, 2, 2, 2}, [&] { ++wakes; }};
  for (const char* host : {"a", "b", "c"}) {
    DenialEvent denial;
    denial.host = host;
    queue.emit(std::move(denial));
    queue.emit(EndpointObservation{host, 0, host, Port{1}, EndpointResult::kTlsFailed, 1});
  }
  EXPECT_EQ(wakes, 1);
  const auto batch = queue.drain();
  ASSERT_EQ(batch.denials.size(), 2U);
  EXPECT_EQ(batch.denials[0].host, "b");
  EXPECT_EQ(batch.observations[1].host, "b");
  EXPECT_EQ(queue.dropped().denials, 1U);
  EXPECT_EQ(queue.dropped().observations, 1U);
  queue.emit(ActivityCount{true, "ssrf"});
  EXPECT_EQ(wakes, 2);
}

}  // namespace
}  // namespace openshell::egress
