#include "isolation/boundary/launch_material.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace openshell::boundary {
namespace {

constexpr char kSession[] = "1b671a64-40d5-491e-99b0-da01ff1f3341";

OuterFence fence() { return {"g1", {kFenceGuarantees.begin(), kFenceGuarantees.end()}, evidence_digest("g1", "{}")}; }

Bootstrap bootstrap() {
  Bootstrap b;
  b.boundary_id = "sb";
  b.generation = "g1";
  b.session_id = kSession;
  b.gateway_id = "gw";
  b.verification_keys = {{"k1", "PEM"}};
  b.listener = {UnixListener{"/.openshell/channel/control.sock"}, {"/c/chain.pem", "/c/key.pem", "/c/ca.pem"}};
  b.resource_claims = {{"process.netns", "4:1"}};
  b.resource_claim_files = {{"process.netns", "/etc/claim"}};
  b.workload_identity = {1000, 1000, {20, 30}, "driver", ""};
  b.outer_fence = fence();
  b.child_env = {{"A", "b"}};
  b.peer_names = PeerNames::anyip;
  return b;
}

Descriptor descriptor() {
  Descriptor d;
  d.boundary_id = "sb";
  d.generation = "g1";
  d.session_id = kSession;
  d.workload_identity = {1000, 1000, {}, "driver", ""};
  d.transport = UnixTransport{"/run/x/control.sock"};
  d.tls_server_name = tls_server_name(kSession);
  d.tls_trust_anchor_pem = "CA";
  d.tls_client_certificate_pem = "CERT";
  d.tls_client_private_key_pem = Secret{"KEY"};
  d.host_gateway_ip = "127.0.0.1";
  d.outer_fence = fence();
  return d;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(LaunchMaterial, BootstrapRoundTrip) {
  const std::string json = serialise(bootstrap());
  auto back = parse_bootstrap(json);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(serialise(*back), json);
  EXPECT_EQ(back->peer_names, PeerNames::anyip);
  EXPECT_EQ(back->stop_grace_secs, 10u);
  EXPECT_EQ(back->listener, bootstrap().listener);
}

TEST(LaunchMaterial, DescriptorAndBundleRoundTripAndMatch) {
  auto d = parse_descriptor(serialise(descriptor()));
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(serialise(*d), serialise(descriptor()));
  EXPECT_EQ(d->tls_client_private_key_pem.reveal(), "KEY");
  AuthBundle bundle{kSession, "g1", 1, 1, Secret{"t1"}, 5, Secret{"t2"}, 0};
  auto b = parse_auth_bundle(serialise(bundle));
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_TRUE(check_match(*d, *b).ok());
  b->runtime_generation = "g2";
  EXPECT_EQ(check_match(*d, *b).message(), "supervisor authentication bundle does not match runtime generation");
  EXPECT_FALSE(parse_auth_bundle(replaced(serialise(bundle), "\"gateway_expires_at\":5", "\"gateway_expires_at\":-5")).ok());
  EXPECT_FALSE(parse_auth_bundle(replaced(serialise(bundle), "\"auth_epoch\":1", "\"auth_epoch\":0")).ok());
}

TEST(LaunchMaterial, TransportsAndListeners) {
  for (const Transport& transport : {Transport{TcpTransport{"a", {"192.0.2.1:5", "[2001:db8::1]:7"}}}, Transport{VsockTransport{3, 1}}}) {
    auto d = descriptor();
    d.transport = transport;
    auto back = parse_descriptor(serialise(d));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->transport, transport);
  }
  for (const Transport& transport :
       {Transport{UnixTransport{"relative"}}, Transport{TcpTransport{"a", {}}}, Transport{TcpTransport{"a", {"host:5"}}},
        Transport{TcpTransport{"a", {"192.0.2.1:0"}}}, Transport{VsockTransport{2, 1}}, Transport{VsockTransport{3, 0}}}) {
    auto d = descriptor();
    d.transport = transport;
    EXPECT_FALSE(parse_descriptor(serialise(d)).ok());
  }
  auto b = bootstrap();
  b.listener.endpoint = TcpListener{"10.0.0.1:70000"};
  EXPECT_FALSE(parse_bootstrap(serialise(b)).ok());
  b.listener.endpoint = UnixListener{"/" + std::string(107, 'x')};
  EXPECT_FALSE(parse_bootstrap(serialise(b)).ok()) << "a socket path has room for 107 bytes";
  b.listener.endpoint = UnixListener{"/" + std::string(106, 'x')};
  EXPECT_TRUE(parse_bootstrap(serialise(b)).ok());
}

TEST(LaunchMaterial, WhatIsWrongIsNamedAndRefused) {
  const auto refused = [](auto change, const std::string& names) {
    auto b = bootstrap();
    change(b);
    auto back = parse_bootstrap(serialise(b));
    EXPECT_FALSE(back.ok()) << names;
    EXPECT_NE(std::string(back.status().message()).find(names), std::string::npos) << back.status();
  };
  refused([](Bootstrap& b) { b.workload_identity.uid = 0; }, "workload_identity");
  refused([](Bootstrap& b) { b.workload_identity.gid = 4'294'967'295u; }, "workload_identity");
  refused([](Bootstrap& b) { b.workload_identity.supplementary_gids = {30, 20}; }, "supplementary_gids");
  refused([](Bootstrap& b) { b.verification_keys.push_back(b.verification_keys[0]); }, "verification_keys");
  refused([](Bootstrap& b) { b.verification_keys.clear(); }, "verification_keys");
  refused([](Bootstrap& b) { b.resource_claims["x y"] = "z"; }, "resource_claims");
  refused([](Bootstrap& b) { b.resource_claim_files["other"] = "/f"; }, "resource_claim_files");
  refused([](Bootstrap& b) { b.outer_fence.established.pop_back(); }, "outer_fence");
  refused([](Bootstrap& b) { b.outer_fence.generation = "g2"; }, "outer_fence");
  refused([](Bootstrap& b) { b.session_id = "x"; }, "session_id");
  refused([](Bootstrap& b) { b.recovery_window_ms = 30'001; }, "recovery_window_ms");
  EXPECT_FALSE(parse_bootstrap(replaced(serialise(bootstrap()), "\"gateway_id\"", "\"gateway_idd\"")).ok());
  EXPECT_FALSE(parse_bootstrap(replaced(serialise(bootstrap()), "\"auth_epoch\":1", "\"auth_epoch\":1.0")).ok());
  EXPECT_FALSE(parse_bootstrap(serialise(bootstrap()) + "x").ok());
  EXPECT_FALSE(parse_bootstrap(std::string(kMaxLaunchFileBytes + 1, ' ')).ok());
}

TEST(LaunchMaterial, FileRules) {
  std::string dir = ::testing::TempDir() + "launch_material-XXXXXX";  // another run may be under way
  ASSERT_NE(::mkdtemp(dir.data()), nullptr);
  const std::string path = dir + "/file";
  EXPECT_EQ(read_launch_file(path).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(path) << "{}";
  ::chmod(path.c_str(), 0400);
  ASSERT_TRUE(read_launch_file(path).ok());
  ::chmod(path.c_str(), 0620);
  EXPECT_FALSE(read_launch_file(path).ok()) << "writable by the group";
  ::chmod(path.c_str(), 0600);
  const std::string link = dir + "/link";
  ASSERT_EQ(::symlink(path.c_str(), link.c_str()), 0);
  EXPECT_FALSE(read_launch_file(link).ok());
  EXPECT_FALSE(read_launch_file(dir).ok());
  std::ofstream(path) << std::string(kMaxLaunchFileBytes, 'x');
  EXPECT_TRUE(read_launch_file(path).ok());
  std::ofstream(path) << std::string(kMaxLaunchFileBytes + 1, 'x');
  EXPECT_FALSE(read_launch_file(path).ok());
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace openshell::boundary
