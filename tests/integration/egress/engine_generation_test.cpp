// FB-06: a policy change ends what it no longer allows, and nothing else.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include "tests/integration/egress/support.hpp"

namespace openshell::egress::test {
namespace {

std::string endpoint(const std::string& rule, std::uint16_t port, const std::string& more) {
  return fmt::format("  {}:\n    endpoints:\n      - host: {}\n        port: {}\n{}    binaries: [/usr/bin/curl]\n", rule, kHost, port,
                     more);
}
const std::string kRaw = "        protocol: tcp\n";
const std::string kRest = "        protocol: rest\n        enforcement: enforce\n        access: full\n";

std::string rest_rules(const std::string& path) {
  return fmt::format(
      "        protocol: rest\n        enforcement: enforce\n        rules:\n          - allow: {{method: GET, path: \"{}\"}}\n", path);
}

// FB-06
TEST(EngineGeneration, FB_06_AnUnrelatedRuleKeepsARelay) {
  Server server;
  World world;
  world.publish(endpoint("a", server.port(), kRaw));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire->write(get("/v1", server.port())));
  EXPECT_EQ(read_message(*opened.wire).status, 200);
  const auto report = world.publish(endpoint("a", server.port(), kRaw) + endpoint("b", 1, kRaw));
  EXPECT_EQ(report.kept, 1U);
  EXPECT_EQ(report.closed, 0U);
  ASSERT_TRUE(opened.wire->write(get("/v2", server.port())));
  EXPECT_EQ(read_message(*opened.wire).status, 200);
}

// FB-06
TEST(EngineGeneration, FB_06_ARevokedRuleResetsARelay) {
  Server server;
  World world;
  world.publish(endpoint("a", server.port(), kRaw));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire->write(get("/v1", server.port())));
  EXPECT_EQ(read_message(*opened.wire).status, 200);
  const auto report = world.publish(endpoint("b", 1, kRaw));
  EXPECT_EQ(report.closed, 1U);
  EXPECT_EQ(opened.wire->read(), "");
  EXPECT_EQ(world.open(kHost, server.port()).denied.kind, DenialKind::kPolicyDenied);
}

TEST(EngineGeneration, FB_06_AnotherInspectionEndsARelay) {
  Server server;
  World world;
  world.publish(endpoint("a", server.port(), kRaw));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire->write(get("/v1", server.port())));
  EXPECT_EQ(read_message(*opened.wire).status, 200);
  EXPECT_EQ(world.publish(endpoint("a", server.port(), kRest)).closed, 1U);
}

TEST(EngineGeneration, FB_06_AResponseInFlightIsCutWhenItsRequestIsNoLongerAllowed) {
  Server server;
  World world;
  world.publish(endpoint("a", server.port(), rest_rules("/slow")));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire->write(get("/slow", server.port())));
  std::string got;
  while (got.find("hello") == std::string::npos) got += opened.wire->read();
  EXPECT_EQ(world.publish(endpoint("a", server.port(), rest_rules("/other"))).closed, 1U);
  server.release();
  EXPECT_EQ(opened.wire->read(), "");
}

TEST(EngineGeneration, FB_06_AResponseInFlightGoesOnWhenItsRequestIsStillAllowed) {
  Server server;
  World world;
  world.publish(endpoint("a", server.port(), rest_rules("/slow")));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire->write(get("/slow", server.port())));
  std::string got;
  while (got.find("hello") == std::string::npos) got += opened.wire->read();
  EXPECT_EQ(world.publish(endpoint("a", server.port(), rest_rules("/s*"))).kept, 1U);
  server.release();
  while (got.find("there") == std::string::npos) {
    const auto more = opened.wire->read();
    ASSERT_FALSE(more.empty());
    got += more;
  }
}

// NET-37
TEST(EngineGeneration, FB_06_TheNextRequestMeetsTheNewRules) {  // FB-08
  Server server;
  World world;
  world.publish(endpoint("a", server.port(), rest_rules("/one")));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire->write(get("/one", server.port())));
  EXPECT_EQ(read_message(*opened.wire).status, 200);
  EXPECT_EQ(world.publish(endpoint("a", server.port(), rest_rules("/two"))).kept, 1U);
  ASSERT_TRUE(opened.wire->write(get("/two", server.port())));
  EXPECT_EQ(read_message(*opened.wire).status, 200);
  ASSERT_TRUE(opened.wire->write(get("/one", server.port())));
  EXPECT_EQ(read_message(*opened.wire).status, 403);
}

TEST(EngineGeneration, FB_06_QuarantineEndsEverything) {
  Server server;
  World world;
  world.publish(endpoint("a", server.port(), kRaw));
  auto opened = world.open(kHost, server.port());
  ASSERT_TRUE(opened.wire->write(get("/v1", server.port())));
  EXPECT_EQ(read_message(*opened.wire).status, 200);
  const auto report = world.publish(endpoint("a", server.port(), kRaw), [](Generation& generation) { generation.matcher = nullptr; });
  EXPECT_EQ(report.closed, 1U);
}

TEST(EngineGeneration, CR_ACredentialOfAnotherIdentityEndsItsExchange) {
  Server server;
  World world;
  ProviderEnvironment environment;
  environment.revision = 1;
  environment.values.emplace("KEY", Secret{"first-secret"});
  environment.bindings["KEY"] = {{{kHost, server.port(), ""}}, "one:KEY", ""};
  const auto policy = endpoint("a", server.port(), kRest);
  const auto run = [&](const std::string& identity, std::uint64_t revision) {
    const auto token = world.install(environment, "KEY");
    world.publish(policy);
    auto opened = world.open(kHost, server.port());
    EXPECT_TRUE(opened.wire->write(get("/slow", server.port(), "Authorization: Bearer " + token + "\r\n")));
    std::string got;
    while (got.find("hello") == std::string::npos) {
      const auto more = opened.wire->read();
      if (more.empty()) break;
      got += more;
    }
    environment.revision = revision;
    environment.bindings["KEY"].identity = identity;
    world.install(environment, "KEY");
    return world.publish(policy);
  };
  EXPECT_EQ(run("one:KEY", 2).closed, 0U);  // a new value of the same credential
  EXPECT_GE(run("two:KEY", 3).closed, 1U);
  server.release();
}

TEST(EngineGeneration, AClientThatGoesAwayEndsTheRelayAtOnce) {
  Server server;
  World world;
  world.publish(endpoint("a", server.port(), kRest));
  OpenIntent intent;
  intent.address = *IpAddress::parse(world.resolve(kHost));
  intent.port = Port{server.port()};
  intent.identity = ResolvedIdentity{{kCurl, digest_of(kCurl)}, {}, {}};
  auto opened = world.open_intent(intent, true);
  ASSERT_TRUE(opened.wire->write(get("/hang", server.port())));
  while (server.requests() == 0) std::this_thread::yield();
  EXPECT_EQ(world.engine().counters().live_relays, 1U);
  opened.wire->reset();
  opened.wire.reset();
  // The response never comes; only the reset of the client can end this.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{5};
  while (world.engine().counters().live_relays != 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_EQ(world.engine().counters().live_relays, 0U);
  server.release();
}

TEST(EngineGeneration, SameContentKeepsNamesWithinTheirTtl) {
  World world;
  world.publish(endpoint("a", 443, kRaw));
  const auto before = world.resolve(kHost);
  world.publish(endpoint("a", 443, kRaw) + endpoint("b", 80, kRaw));
  const auto after = world.resolve(kHost);
  EXPECT_NE(before, after);  // another contract, another address
  world.publish(endpoint("a", 443, kRaw));
  EXPECT_EQ(world.resolve(kHost), before);
}

TEST(EngineGeneration, AnOlderGenerationIsRefused) {
  World world;
  world.publish(endpoint("a", 443, kRaw));
  const auto report =
      world.publish("  b:\n    endpoints:\n      - host: b.test\n        port: 1\n        protocol: tcp\n    binaries: [/usr/bin/curl]\n",
                    [](Generation& generation) { generation.number = 0; });
  EXPECT_EQ(report.number, 0U);
  EXPECT_THAT(world.resolve(kHost), testing::HasSubstr("198.18."));
  EXPECT_EQ(world.connect(world.resolve(kHost), 2).denied.kind, DenialKind::kPolicyDenied);
}

}  // namespace
}  // namespace openshell::egress::test
