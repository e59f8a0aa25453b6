#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <fmt/format.h>

#include "egress/dns/mapping_table.hpp"
#include "egress/dns/message.hpp"
#include "egress/dns/names.hpp"

namespace openshell::egress::dns {
namespace {

using namespace std::chrono_literals;

std::string question(const std::string& name, std::uint16_t type = kTypeA) { return *build_question(0x1234, name, type); }

TEST(DnsMessage, NET_QueriesAreEchoedAsSent) {
  auto bytes = question("DB.Acme.test");
  const auto parsed = parse_query(bytes);
  ASSERT_TRUE(parsed.query);
  EXPECT_EQ(parsed.query->name, "db.acme.test");
  const auto answer = build_answer(*parsed.query, Rcode::kNoError, *IpAddress::parse("198.18.32.3"), 30);
  EXPECT_EQ(answer.substr(12, bytes.size() - 12), bytes.substr(12));
  const auto reply = parse_reply(answer, 0x1234, "db.acme.test", kTypeA);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->addresses.front().str(), "198.18.32.3");
  EXPECT_EQ(reply->ttl_seconds, 30U);
}

TEST(DnsMessage, NET_MalformedQueries) {
  const auto good = question("a.test");
  const auto rcode = [](std::string bytes) {
    const auto parsed = parse_query(bytes);
    return parsed.query ? -1 : static_cast<int>(parsed.error.rcode);
  };
  EXPECT_EQ(rcode(good), -1);
  for (std::size_t length = 0; length < good.size(); ++length) EXPECT_EQ(rcode(good.substr(0, length)), 1) << length;
  EXPECT_EQ(rcode(good + "x"), 1);
  auto response = good;
  response[2] = static_cast<char>(0x81);
  EXPECT_EQ(rcode(response), 1);
  auto opcode = good;
  opcode[2] = 0x28;
  EXPECT_EQ(rcode(opcode), 1);
  auto two = good;
  two[5] = 2;
  EXPECT_EQ(rcode(two), 1);
  auto chaos = good;
  chaos[chaos.size() - 1] = 3;
  EXPECT_EQ(rcode(chaos), 4);
  auto pointer = good;
  pointer[12] = static_cast<char>(0xc0);
  EXPECT_EQ(rcode(pointer), 1);
  EXPECT_EQ(rcode(good + std::string(kMaxMessageBytes, '\0')), 1);
}

std::string record(const std::string& owner, std::uint16_t type, std::uint32_t ttl, const std::string& data) {
  std::string out = owner;
  for (const int shift : {8, 0}) out.push_back(static_cast<char>(type >> shift));
  out += std::string{"\0\1", 2};
  for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<char>(ttl >> shift));
  for (const int shift : {8, 0}) out.push_back(static_cast<char>(data.size() >> shift));
  return out + data;
}

std::string reply_with(const std::string& name, std::vector<std::string> records) {
  auto out = question(name);
  out[2] = static_cast<char>(0x81);
  out[3] = static_cast<char>(0x80);
  out[7] = static_cast<char>(records.size());
  for (const auto& one : records) out += one;
  return out;
}

const std::string kSame{"\xc0\x0c", 2};

TEST(DnsMessage, NET_RepliesFollowCnamesAndOnlyThose) {
  const std::string alias{"\1b\4test\0", 8};
  const std::string address{"\x0a\4\0\x09", 4};
  const auto reply =
      parse_reply(reply_with("a.test", {record(kSame, 5, 60, alias), record(alias, 1, 20, address), record(alias, 1, 90, address)}), 0x1234,
                  "a.test", kTypeA);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->canonical_name, "b.test");
  EXPECT_EQ(reply->addresses.size(), 1U);
  EXPECT_EQ(reply->ttl_seconds, 20U);
  const std::string stranger{"\1x\4evil\0", 8};
  EXPECT_TRUE(parse_reply(reply_with("a.test", {record(stranger, 1, 20, address)}), 0x1234, "a.test", kTypeA)->addresses.empty());
  EXPECT_FALSE(parse_reply(reply_with("a.test", {record(kSame, 5, 1, kSame)}), 0x1234, "a.test", kTypeA).ok());  // a loop
  EXPECT_FALSE(parse_reply(reply_with("a.test", {record(kSame, 1, 1, "abc")}), 0x1234, "a.test", kTypeA).ok());
  EXPECT_FALSE(parse_reply(reply_with("a.test", {}), 0x1235, "a.test", kTypeA).ok());
  EXPECT_FALSE(parse_reply(reply_with("a.test", {}), 0x1234, "b.test", kTypeA).ok());
  EXPECT_FALSE(parse_reply(question("a.test"), 0x1234, "a.test", kTypeA).ok());
}

TEST(DnsMessage, NET_AddressesAtTheirLimit) {
  std::vector<std::string> records;
  for (std::size_t i = 0; i < kMaxAddresses + 5; ++i)
    records.push_back(record(kSame, 1, 9, std::string{"\1\2\3", 3} + static_cast<char>(i)));
  EXPECT_EQ(parse_reply(reply_with("a.test", records), 0x1234, "a.test", kTypeA)->addresses.size(), kMaxAddresses);
}

TEST(DnsNames, NET_Kinds) {
  EXPECT_EQ(classify_name("policy.local"), NameKind::kPolicyLocal);
  EXPECT_EQ(classify_name("proxy.local"), NameKind::kProxyLocal);
  EXPECT_EQ(classify_name("host.docker.internal"), NameKind::kHostAlias);
  EXPECT_EQ(classify_name("a.test"), NameKind::kHost);
  for (const char* never :
       {"a", "printer.local", "localhost", "a.localhost", "1.in-addr.arpa", "1.ip6.arpa", "1.2.3.4", "a.0x7f", "-a.test"}) {
    EXPECT_EQ(classify_name(never), NameKind::kNever) << never;
  }
  EXPECT_TRUE(is_public_host_name("a-b.test"));
  EXPECT_FALSE(is_public_host_name("a_b.test"));
}

const Clock::time_point kStart{};

// NET-48
TEST(MappingTable, NET_SameKeySameAddressOtherContractOtherAddress) {
  MappingTable table{1};
  const auto publish = [&](const char* name, const char* identity, std::uint64_t generation = 1) {
    return (*table.publish(name, identity, {}, 300s, generation, kStart))->synthetic.str();
  };
  EXPECT_EQ(publish("a.test", "x"), "198.18.32.3");  // window 1, behind the reserved three
  EXPECT_EQ(publish("a.test", "x"), "198.18.32.3");
  EXPECT_EQ(publish("a.test", "y"), "198.18.32.4");
  EXPECT_EQ(publish("b.test", "x"), "198.18.32.5");
  EXPECT_EQ(publish("a.test", "x", 2), "198.18.32.3");
  EXPECT_TRUE(absl::IsAborted(table.publish("a.test", "x", {}, 300s, 1, kStart).status()));
}

// NET-49
TEST(MappingTable, NET_MappingsExpireAndKeepTheirAddress) {
  MappingTable table{0};
  const auto address = (*table.publish("a.test", "x", {}, 300s, 1, kStart))->synthetic;
  EXPECT_TRUE(std::holds_alternative<const Mapping*>(table.find(address, kStart + 30s + MappingTable::kGrace - 1s)));
  EXPECT_EQ(std::get<LookupFailure>(table.find(address, kStart + 30s + MappingTable::kGrace)), LookupFailure::kExpired);
  EXPECT_EQ((*table.publish("a.test", "x", {}, 0s, 1, kStart + 60s))->expires, kStart + 61s);
  EXPECT_EQ((*table.publish("b.test", "x", {}, 5s, 1, kStart))->synthetic.str(), "198.18.0.4");
}

// A program that resolves once and connects for hours: its address stays good while it is used (NET-49, hostile finding F8).
TEST(MappingTable, NET_AnAddressInUseOutlivesItsTtl) {
  MappingTable table{0};
  const auto address = (*table.publish("a.test", "x", {}, 1s, 1, kStart))->synthetic;
  EXPECT_FALSE(table.note_use(address, kStart));      // within the TTL nothing has to be asked anew
  EXPECT_TRUE(table.note_use(address, kStart + 1s));  // behind it the name does
  const auto hours = kStart + std::chrono::hours{5};
  for (auto at = kStart; at < hours; at += MappingTable::kGrace - 1s) {
    ASSERT_TRUE(std::holds_alternative<const Mapping*>(table.find(address, at)));
    table.note_use(address, at);
  }
  EXPECT_EQ(std::get<LookupFailure>(table.find(address, hours + MappingTable::kGrace)), LookupFailure::kExpired);
  table.note_use(*IpAddress::parse("198.18.0.99"), kStart);  // not ours: nothing is added
  EXPECT_EQ(table.allowed_count(), 1U);
}

TEST(MappingTable, NET_ADeniedNameThatIsTriedAgainKeepsItsName) {
  MappingTable table{0};
  const auto address = table.deny("x.test", kStart);
  table.note_use(*address, kStart + 20s);
  EXPECT_EQ(std::get<DeniedName>(table.find(*address, kStart + 49s)).name, "x.test");
  EXPECT_EQ(std::get<LookupFailure>(table.find(*address, kStart + 50s)), LookupFailure::kExpired);
}

TEST(MappingTable, NET_AddressesOutsideTheWindowAreNeverLiterals) {
  MappingTable table{3};
  const auto at = [&](const char* text) { return std::get<LookupFailure>(table.find(*IpAddress::parse(text), kStart)); };
  EXPECT_EQ(at("198.18.0.1"), LookupFailure::kReserved);
  EXPECT_EQ(at("198.18.0.2"), LookupFailure::kReserved);
  EXPECT_EQ(at("198.19.255.255"), LookupFailure::kMissing);
  EXPECT_EQ(at("::ffff:198.18.0.9"), LookupFailure::kMissing);
  EXPECT_EQ(at("fd23:6f70:656e::1"), LookupFailure::kMissing);
  EXPECT_EQ(at("198.20.0.0"), LookupFailure::kNotSynthetic);
}

TEST(MappingTable, NET_TheAllowedHalfIsAHardBound) {
  MappingTable table{2};
  std::size_t count = 0;
  absl::Status last;
  bool high_water = false;
  while (last.ok()) {
    last = table.publish(fmt::format("h{}.test", count), "x", {}, 1s, 1, kStart).status();
    count += last.ok() ? 1 : 0;
    if (table.take_high_water()) {
      EXPECT_FALSE(high_water);
      high_water = true;
    }
  }
  EXPECT_TRUE(absl::IsResourceExhausted(last));
  EXPECT_EQ(count, MappingTable::kHalf - 3);
  EXPECT_TRUE(high_water);
}

TEST(MappingTable, NET_DeniedNamesAreATableOfTheirOwn) {
  MappingTable table{1};
  const auto first = table.deny("x.test", kStart);
  EXPECT_EQ(first->str(), "198.18.48.0");
  EXPECT_EQ(table.deny("x.test", kStart + 20s), first);
  EXPECT_EQ(std::get<DeniedName>(table.find(*first, kStart + 49s)).name, "x.test");
  EXPECT_EQ(std::get<LookupFailure>(table.find(*first, kStart + 50s)), LookupFailure::kExpired);
  for (std::size_t i = 1; i < MappingTable::kMaxDenied; ++i) ASSERT_TRUE(table.deny(fmt::format("d{}.test", i), kStart + 30s)) << i;
  EXPECT_FALSE(table.deny("full.test", kStart + 40s));
  EXPECT_EQ(table.denied_table_full(), 1U);
  const auto later = table.deny("full.test", kStart + 55s);  // x.test is forgotten by then
  ASSERT_TRUE(later);
  EXPECT_NE(later, first);  // in turn, not at once again
}

TEST(MappingTable, FB_06_RejudgingMovesOrStales) {
  MappingTable table{0};
  const auto kept = (*table.publish("keep.test", "x", {}, 30s, 1, kStart))->synthetic;
  const auto gone = (*table.publish("gone.test", "y", {}, 30s, 1, kStart))->synthetic;
  table.rejudge(2, [](const Mapping& mapping, std::string_view) -> std::optional<std::vector<Contract>> {
    if (mapping.name == "gone.test") return std::nullopt;
    return mapping.contracts;
  });
  EXPECT_EQ(std::get<const Mapping*>(table.find(kept, kStart))->generation, 2U);
  EXPECT_EQ(std::get<LookupFailure>(table.find(gone, kStart)), LookupFailure::kStale);
}

TEST(DnsEpoch, NET_RisesSurvivesAndRefusesCorruption) {
  char directory[] = "/tmp/egress-epoch-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string path = std::string{directory} + "/policy-dns-epoch";
  const auto first = next_epoch(directory, "sandbox-1");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*next_epoch(directory, "sandbox-1"), *first + 1);
  std::ofstream{path} << "18446744073709551615\n";
  EXPECT_EQ(*next_epoch(directory, ""), 0U);
  for (const char* corrupt : {"", "x", "-1", "1 2", "99999999999999999999999"}) {
    std::ofstream{path} << corrupt;
    EXPECT_TRUE(absl::IsFailedPrecondition(next_epoch(directory, "").status())) << corrupt;
  }
  EXPECT_EQ(*next_epoch("", "x"), 0U);
  unlink(path.c_str());
  rmdir(directory);
}

}  // namespace
}  // namespace openshell::egress::dns
