// Each of the four guarantees is given only if all its checks passed: here every check fails once, alone.
#include "drivers/process/fence_evidence.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/json.hpp>
#include <chrono>
#include <functional>

#include "drivers/process/network_namespace.hpp"

namespace openshell::drivers::process {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint32_t kBase = 1'900'000'016;

NetworkFacts good_network() {
  NetworkFacts network;
  network.links = {{1, "lo", 772, true}};
  network.addresses = {{1, "127.0.0.1", 8}, {1, "192.0.2.1", 32}, {1, "::1", 128}, {1, "2001:db8::1", 128}};
  network.routes = {{false, "", 0, 255, RTN_LOCAL, RTPROT_BOOT, 1, false},
                    {false, "127.0.0.0", 8, 255, RTN_LOCAL, RTPROT_KERNEL, 1, false},
                    {false, "192.0.2.1", 32, 255, RTN_LOCAL, RTPROT_KERNEL, 1, false},
                    {true, "::1", 128, 254, RTN_UNICAST, RTPROT_KERNEL, 1, false},
                    {true, "", 0, 255, RTN_LOCAL, RTPROT_BOOT, 1, false}};
  network.rules = {{false, 10, 255, 1, false},
                   {false, 32766, 254, 1, false},
                   {true, 10, 255, 1, false},
                   {false, 1, 255, 1, true},
                   {false, 2, 0, 7, true}};  // ours: UDP to loopback, other UDP is unreachable
  network.descriptors = {"/dev/null", "pipe:[1]", "pipe:[1]", "pipe:[2]"};
  network.probes = {{"tcp 198.51.100.1:9", ECONNREFUSED},
                    {"tcp [2001:db8:ffff::1]:9", ENETUNREACH},
                    {"tcp 10.0.0.1:4000", ECONNREFUSED},
                    {"udp 10.0.0.1:4001", 0}};
  return network;
}

FenceFacts good_facts() {
  FenceFacts facts;
  facts.generation = "g1";
  facts.init = {4711, 12345};
  facts.boot_id = "boot";
  for (const char* name : {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}) {
    facts.namespaces[name] = {4, 2000 + static_cast<std::uint64_t>(name[0])};
    facts.own_namespaces[name] = {4, 1000 + static_cast<std::uint64_t>(name[0])};
  }
  facts.uids = facts.gids = {kBase, kBase, kBase, kBase};
  facts.no_new_privs = true;
  facts.devices = {"fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"};
  Mount root;
  root.mount_point = root.root = "/";
  root.type = "tmpfs";
  root.device = "0:40";
  root.read_only = root.no_suid = root.no_dev = true;
  facts.mounts = {root};
  facts.with_launcher = facts.without_launcher = good_network();
  return facts;
}

FenceExpectation expectation() {
  FenceExpectation expected;
  expected.kernel_uid = expected.kernel_gid = kBase;
  expected.mounts = {{"/", "tmpfs", "/", {}, true}};
  expected.seen_uid = expected.seen_gid = 1000;
  return expected;
}

TEST(Fence, DRV_02_03_05_06_AllFourInOrder) {
  const auto established = judge(good_facts(), expectation());
  ASSERT_TRUE(established.ok()) << established.status();
  EXPECT_EQ(*established, std::vector<std::string>(boundary::kFenceGuarantees.begin(), boundary::kFenceGuarantees.end()));
}

TEST(Fence, DRV_09_10_13_EveryCheckClosesAlone) {  // DRV-02, DRV-03, DRV-05, DRV-06, DRV-10, DRV-13
  struct Case {
    const char* guarantee;
    const char* found;
    std::function<void(FenceFacts&)> spoil;
  };
  const std::vector<Case> cases = {
      {"default_deny_egress", "namespace net is the host's", [](FenceFacts& f) { f.namespaces["net"] = f.own_namespaces["net"]; }},
      {"default_deny_egress", "namespace net is unknown", [](FenceFacts& f) { f.namespaces.erase("net"); }},
      {"default_deny_egress", "2 links",
       [](FenceFacts& f) {
         f.with_launcher.links.push_back({2, "eth0", 1, true});
       }},
      {"default_deny_egress", "2 links",
       [](FenceFacts& f) {
         f.without_launcher.links.push_back({2, "eth0", 1, false});
       }},
      {"default_deny_egress", "not lo", [](FenceFacts& f) { f.without_launcher.links[0].type = 1; }},
      {"default_deny_egress", "addresses are",
       [](FenceFacts& f) {
         f.without_launcher.addresses.push_back({1, "10.0.0.5", 24});
       }},
      {"default_deny_egress", "addresses are", [](FenceFacts& f) { f.with_launcher.addresses.pop_back(); }},
      {"default_deny_egress", "route",
       [](FenceFacts& f) {
         f.without_launcher.routes.push_back({false, "", 0, 254, RTN_UNICAST, RTPROT_BOOT, 1, false});
       }},
      {"default_deny_egress", "route",
       [](FenceFacts& f) {
         f.without_launcher.routes.push_back({false, "192.0.2.1", 32, 255, RTN_LOCAL, RTPROT_BOOT, 1, true});
       }},
      {"default_deny_egress", "route",
       [](FenceFacts& f) {
         f.without_launcher.routes.push_back({false, "127.0.0.0", 8, 255, RTN_LOCAL, RTPROT_BOOT, 2, false});
       }},
      {"default_deny_egress", "policy rule",
       [](FenceFacts& f) {
         f.without_launcher.rules.push_back({false, 100, 77, 1, false});
       }},
      {"default_deny_egress", "policy rule", [](FenceFacts& f) { f.without_launcher.rules[1].selective = true; }},
      {"default_deny_egress", "policy rule", [](FenceFacts& f) { f.without_launcher.rules[3].table = 254; }},
      {"default_deny_egress", "policy rule", [](FenceFacts& f) { f.without_launcher.rules[4].action = 2; }},
      {"no_unmanaged_egress_path", "PID 1 holds", [](FenceFacts& f) { f.without_launcher.descriptors.emplace_back("socket:[99]"); }},
      {"no_unmanaged_egress_path", "PID 1 holds", [](FenceFacts& f) { f.without_launcher.descriptors[1] = "net:[4026531840]"; }},
      {"no_unmanaged_egress_path", "is not as planned", [](FenceFacts& f) { f.mounts[0].read_only = false; }},
      {"no_unmanaged_egress_path", "is not as planned", [](FenceFacts& f) { f.mounts[0].no_dev = false; }},
      {"no_unmanaged_egress_path", "is not as planned", [](FenceFacts& f) { f.mounts[0].no_suid = false; }},
      {"no_unmanaged_egress_path", "is missing", [](FenceFacts& f) { f.mounts.clear(); }},
      {"no_unmanaged_egress_path", "/var/run",
       [](FenceFacts& f) {
         f.mounts.push_back({2, "0:1", "/", "/var/run", "tmpfs", "", true, true, true, true});
       }},
      {"no_unmanaged_egress_path", "uid 0", [](FenceFacts& f) { f.uids[2] = 0; }},
      {"no_unmanaged_egress_path", "gid", [](FenceFacts& f) { f.gids[3] = 5; }},
      {"no_unmanaged_egress_path", "supplementary groups", [](FenceFacts& f) { f.groups = {27}; }},
      {"no_unmanaged_egress_path", "no_new_privs", [](FenceFacts& f) { f.no_new_privs = false; }},
      {"no_unmanaged_egress_path", "capabilities", [](FenceFacts& f) { f.capabilities[3] = 1; }},
      {"no_unmanaged_egress_path", "user namespace belongs to", [](FenceFacts& f) { f.user_namespace_owner = kBase; }},
      {"no_unmanaged_egress_path", "/dev/kvm", [](FenceFacts& f) { f.devices.emplace_back("kvm"); }},
      {"no_unmanaged_egress_path", "/dev/vhost-vsock", [](FenceFacts& f) { f.devices.emplace_back("vhost-vsock"); }},
      {"no_unmanaged_egress_path", "namespace pid is the host's", [](FenceFacts& f) { f.namespaces["pid"] = f.own_namespaces["pid"]; }},
      {"no_unmanaged_egress_path", "namespace user is the host's", [](FenceFacts& f) { f.namespaces["user"] = f.own_namespaces["user"]; }},
      {"revocation_verified", "a supervisor exists", [](FenceFacts& f) { f.supervisor_exists = true; }},
      {"revocation_verified", "nothing was probed", [](FenceFacts& f) { f.without_launcher.probes.clear(); }},
      {"revocation_verified", "errno 0", [](FenceFacts& f) { f.with_launcher.probes[0].error = 0; }},
      {"revocation_verified", "errno 110", [](FenceFacts& f) { f.without_launcher.probes[0].error = ETIMEDOUT; }},
      {"revocation_verified", "errno 115", [](FenceFacts& f) { f.without_launcher.probes[2].error = EINPROGRESS; }},
      {"revocation_verified", "errno 13", [](FenceFacts& f) { f.without_launcher.probes[3].error = EACCES; }},
      {"revocation_verified", "was reached", [](FenceFacts& f) { f.outside_seen = {"udp 127.0.0.1"}; }},
      {"controller_loss_fails_closed", "is held by", [](FenceFacts& f) { f.held_namespaces = {"self net:[5]"}; }},
  };
  for (const Case& each : cases) {
    FenceFacts facts = good_facts();
    each.spoil(facts);
    const auto established = judge(facts, expectation());
    ASSERT_FALSE(established.ok()) << each.guarantee << " " << each.found;
    EXPECT_TRUE(absl::IsFailedPrecondition(established.status()));
    EXPECT_THAT(std::string(established.status().message()), StartsWith(std::string(each.guarantee) + ": "));
    EXPECT_THAT(std::string(established.status().message()), HasSubstr(each.found));
  }
}

TEST(Fence, SingleIdKeepsTheCallersGroupsOnly) {
  FenceFacts facts = good_facts();
  facts.mode = LaunchMode::kSingleId;
  facts.groups = {27, 999};
  EXPECT_TRUE(judge(facts, expectation()).ok());
}

TEST(Fence, DRV_04_07_EvidenceIsCanonicalAndBound) {  // DRV-07
  const std::string evidence = native_evidence(good_facts(), expectation());
  EXPECT_THAT(evidence, StartsWith("{\"driver\":\"process\",\"native\":{\"boot_id\":\"boot\",\"capabilities\":[0,0,0,0,0]"));
  EXPECT_THAT(evidence, ::testing::EndsWith("\"schema\":1,\"workload\":{\"gid\":1000,\"groups\":[],\"uid\":1000}}"));
  EXPECT_EQ(evidence.find(' ', evidence.find("\"descriptors\"")), evidence.find(" 198")) << "no space but those in values";
  EXPECT_EQ(evidence, native_evidence(good_facts(), expectation()));
  const auto value = boost::json::parse(evidence);
  EXPECT_EQ(value.at("native").at("init").at("start").as_int64(), 12345);
  FenceFacts other = good_facts();
  other.init.start_ticks = 12346;
  EXPECT_NE(boundary::evidence_digest("g1", evidence), boundary::evidence_digest("g1", native_evidence(other, expectation())));
  EXPECT_NE(boundary::evidence_digest("g1", evidence), boundary::evidence_digest("g2", evidence));
}

TEST(Fence, OutsideListenersHearWhatReachesThem) {
  const auto outside = OutsideListeners::open();
  ASSERT_TRUE(outside.ok()) << outside.status();
  EXPECT_FALSE(outside->list().empty());
  EXPECT_TRUE(outside->heard(false).empty());
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(outside->heard(true).empty());
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds{OutsideListeners::kSilenceMs});
  const OutsideListener& first = outside->list().front();
  const int fd = socket(first.ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(first.udp_port);
  inet_pton(AF_INET, first.address.c_str(), &to.sin_addr);
  ASSERT_EQ(sendto(fd, "x", 1, 0, reinterpret_cast<sockaddr*>(&to), sizeof to), 1);
  close(fd);
  EXPECT_THAT(outside->heard(true), ::testing::ElementsAre("udp " + first.address));
}

// The wait for silence is left out only where every probe has its answer: one datagram without any keeps it.
TEST(Fence, OnlyAnsweredProbesNeedNoSilence) {
  NetworkFacts network = good_network();
  network.probes = {{"tcp 198.51.100.1:9", ENETUNREACH}, {"udp 127.0.0.1:1", ECONNREFUSED}};
  EXPECT_TRUE(all_refused(network));
  for (const int error : {0, EINPROGRESS, ETIMEDOUT, EPERM}) {
    network.probes.back().error = error;
    EXPECT_FALSE(all_refused(network)) << error;
  }
}

TEST(Fence, ADatagramProbeWaitsForItsAnswer) {
  auto outside = OutsideListeners::open();
  ASSERT_TRUE(outside.ok()) << outside.status();
  const OutsideListener first = outside->list().front();
  EXPECT_EQ(probe_datagram(first.ipv6, first.address, first.udp_port), 0) << "somebody took it, which is no refusal";
  *outside = OutsideListeners{};
  EXPECT_EQ(probe_datagram(first.ipv6, first.address, first.udp_port), ECONNREFUSED);
}

}  // namespace
}  // namespace openshell::drivers::process
