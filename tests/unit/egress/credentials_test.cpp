#include <gmock/gmock.h>

#include "egress/credentials/pattern.hpp"
#include "egress/credentials/placeholder.hpp"
#include "egress/credentials/rewrite.hpp"
#include "egress/credentials/table.hpp"

namespace openshell::egress {
namespace {

using Form = Placeholder::Form;
using std::chrono::system_clock;

TEST(Placeholder, CR_Grammar) {
  const std::string handle(64, 'a');
  EXPECT_EQ(parse_placeholder("openshell:resolve:env:KEY")->form, Form::kCanonical);
  EXPECT_EQ(parse_placeholder("openshell:resolve:env:v41_KEY")->revision, 41U);
  EXPECT_EQ(parse_placeholder("openshell:resolve:env:v41_KEY")->key, "KEY");
  EXPECT_EQ(parse_placeholder("openshell:resolve:env:s" + handle + "_KEY")->handle, handle);
  EXPECT_EQ(parse_placeholder("openshell:resolve:env:v_TOKEN")->form, Form::kCanonical);
  EXPECT_EQ(parse_placeholder("openshell:resolve:env:v10_")->key, "v10_");
  const auto alias = parse_placeholder("sk-OPENSHELL-RESOLVE-ENV-v41_KEY");
  ASSERT_TRUE(alias);
  EXPECT_TRUE(alias->alias);
  EXPECT_EQ(alias->revision, 41U);
  for (const char* bad :
       {"openshell:resolve:env:", "OPENSHELL-RESOLVE-ENV-KEY", "sk-OPENSHELL-RESOLVE-ENV-", "sk-OPENSHELL-RESOLVE-ENV-KEY-more",
        "openshell:resolve:env:KEY more", " openshell:resolve:env:KEY", "plain", "openshell:resolve:env:v99999999999999999999_KEY"}) {
    EXPECT_FALSE(parse_placeholder(bad)) << bad;
  }
}

TEST(Placeholder, CR_MarkersAreSeenRawAndDecodedOnce) {
  EXPECT_TRUE(has_marker("x openshell:resolve:env:"));
  EXPECT_TRUE(has_marker("openshell%3aresolve%3Aenv%3AKEY"));
  EXPECT_TRUE(has_marker("%4FPENSHELL-RESOLVE-ENV-K"));
  EXPECT_FALSE(has_marker("openshell%253aresolve%253aenv%253aKEY"));
  EXPECT_FALSE(has_marker("openshell:resolve:en"));
  EXPECT_EQ(redact_placeholders("/a/openshell:resolve:env:K/b"), "/a/[CREDENTIAL]/b");
  EXPECT_EQ(redact_placeholders("/a/openshell:resolve:env:/b"), std::nullopt);
}

// CR-80, CR-81
TEST(Placeholder, CR_ReservedKeys) {
  EXPECT_TRUE(is_reserved_key("v1_A"));
  EXPECT_TRUE(is_reserved_key("s" + std::string(64, '0') + "_A"));
  for (const char* free : {"v_TOKEN", "v10_", "vx_T", "API_TOKEN", "s12_A"}) EXPECT_FALSE(is_reserved_key(free)) << free;
}

TEST(Pattern, CR_HostsAndPathsHaveOneMeaning) {
  const auto host = [](const char* pattern, const char* text) { return PartsPattern::host(pattern)->matches(text); };
  EXPECT_TRUE(host("*.acme.test", "A.acme.TEST"));
  EXPECT_FALSE(host("*.acme.test", "acme.test"));
  EXPECT_FALSE(host("*.acme.test", "a.b.acme.test"));
  EXPECT_TRUE(host("**.acme.test", "a.b.acme.test"));
  EXPECT_FALSE(host("**.acme.test", "acme.test"));
  EXPECT_TRUE(host("api-[0-9].x.test", "api-7.x.test"));
  EXPECT_FALSE(host("api-?.x.test", "api-77.x.test"));
  const auto path = [](const char* pattern, const char* text) { return PartsPattern::path(pattern)->matches(text); };
  EXPECT_TRUE(path("", "/anything/at/all"));
  EXPECT_TRUE(path("/**", "/"));
  EXPECT_TRUE(path("/v1/*", "/v1/a"));
  EXPECT_FALSE(path("/v1/*", "/v1/a/b"));
  EXPECT_FALSE(path("/v1/*", "/v1/"));
  EXPECT_TRUE(path("/v1/**", "/v1/a/b"));
  EXPECT_FALSE(path("/v1/**", "/v1"));
  for (const char* bad : {"", "a..b", "a b", "{a}.test", "a[.test"}) EXPECT_FALSE(PartsPattern::host(bad).ok()) << bad;
  for (const char* bad : {"v1", "/a[", "/**/**/**/**/**"}) EXPECT_FALSE(PartsPattern::path(bad).ok()) << bad;
}

ProviderEnvironment bound(std::uint64_t revision, const std::string& secret, const std::string& identity = "p1:KEY",
                          const std::string& handle = {}) {
  ProviderEnvironment out;
  out.revision = revision;
  out.values.emplace("KEY", Secret{secret});
  out.bindings["KEY"] = {{{"api.pay.test", 443, "/v1/**"}}, identity, handle};
  return out;
}

struct Ledger {
  CredentialLedger ledger;
  CredentialLedger::Candidate current;
  std::string install(const ProviderEnvironment& environment) {
    auto candidate = ledger.prepare(environment);
    EXPECT_TRUE(candidate.ok()) << candidate.status();
    current = *candidate;
    ledger.commit(current);
    return current.child_env["KEY"];
  }
  std::string resolve(const std::string& token, const std::string& path = "/v1/x", std::uint16_t port = 443,
                      bool explicit_endpoint = false) {
    const auto secret =
        current.table->resolve(*parse_placeholder(token), {"api.pay.test", Port{port}, path, explicit_endpoint}, system_clock::now());
    if (secret.ok()) return std::string{secret->reveal()};
    return absl::IsPermissionDenied(secret.status()) ? "mismatch" : "unavailable";
  }
};

// CR-29
TEST(Credentials, CR_BoundKeysResolveAtTheirEndpointsOnly) {
  Ledger world;
  const auto token = world.install(bound(41, "one"));
  EXPECT_EQ(token, "openshell:resolve:env:v41_KEY");
  EXPECT_EQ(world.resolve(token), "one");
  EXPECT_EQ(world.resolve(token, "/v2/x"), "mismatch");
  EXPECT_EQ(world.resolve(token, "/v1/x", 8443), "mismatch");
  EXPECT_EQ(world.resolve("openshell:resolve:env:KEY"), "unavailable");
  EXPECT_EQ(world.resolve("sk-OPENSHELL-RESOLVE-ENV-KEY"), "unavailable");
  EXPECT_EQ(world.resolve("sk-OPENSHELL-RESOLVE-ENV-v41_KEY"), "one");
  EXPECT_EQ(world.resolve("openshell:resolve:env:v40_KEY"), "unavailable");
  EXPECT_EQ(world.resolve("openshell:resolve:env:v41_OTHER"), "unavailable");
}

// CR-65, CR-78
TEST(Credentials, CR_RotationKeepsOldPlaceholdersAndAnotherIdentityKillsThem) {
  Ledger world;
  const auto first = world.install(bound(1, "one"));
  for (std::uint64_t revision = 2; revision <= 1 + CredentialLedger::kMaxGenerations - 1; ++revision)
    world.install(bound(revision, "later"));
  EXPECT_EQ(world.resolve(first), "one");  // retained: the value of its revision
  for (std::uint64_t revision = 10; revision < 30; ++revision) world.install(bound(revision, "newest"));
  EXPECT_EQ(world.resolve(first), "newest");  // aged out, same identity: the current value
  world.install(bound(50, "other", "p2:KEY"));
  EXPECT_EQ(world.resolve(first), "unavailable");
  EXPECT_EQ(world.resolve("openshell:resolve:env:v50_KEY"), "other");
}

// CR-57, CR-61
TEST(Credentials, CR_StableHandlesFollowRotationAndDieWithTheirHandle) {  // CR-58, CR-79
  Ledger world;
  const auto token = world.install(bound(1, "one", "refresh:a", std::string(64, 'a')));
  world.install(bound(2, "two", "refresh:a", std::string(64, 'a')));
  EXPECT_EQ(world.resolve(token), "two");
  world.install(bound(3, "three", "refresh:b", std::string(64, 'b')));
  EXPECT_EQ(world.resolve(token), "unavailable");
}

// CR-40, CR-41
TEST(Credentials, CR_FailedFetchRevokesAndTheSameIdentityRecovers) {
  Ledger world;
  const auto token = world.install(bound(1, "one"));
  world.current = world.ledger.revoked();
  world.ledger.commit(world.current);
  EXPECT_EQ(world.resolve(token), "unavailable");
  world.install(bound(2, "two"));
  EXPECT_EQ(world.resolve(token), "two");
}

TEST(Credentials, CR_ADetachedKeyStaysKnown) {
  Ledger world;
  const auto token = world.install(bound(1, "one"));
  ProviderEnvironment empty;
  empty.revision = 2;
  world.install(empty);
  EXPECT_EQ(world.resolve(token), "mismatch");
}

TEST(Credentials, HX_GenericKeysResolveAtExplicitEndpointsOnly) {
  Ledger world;
  auto environment = bound(7, "one");
  environment.bindings.clear();
  const auto token = world.install(environment);
  EXPECT_EQ(world.resolve(token, "/", 1, true), "one");
  EXPECT_EQ(world.resolve(token, "/", 1, false), "mismatch");
}

TEST(Credentials, CR_ExpiredAndUnprintableValuesDoNotResolve) {
  Ledger world;
  auto environment = bound(1, "one");
  environment.expires["KEY"] = system_clock::now();
  EXPECT_EQ(world.resolve(world.install(environment)), "unavailable");
  EXPECT_EQ(world.resolve(world.install(bound(2, "a\r\nX: y", "p9:KEY"))), "unavailable");
}

// CR-39
TEST(Credentials, CR_InvalidMetadataRejectsTheSet) {
  CredentialLedger ledger;
  auto both = bound(1, "one");
  both.non_secret = {"KEY"};
  EXPECT_FALSE(ledger.prepare(both).ok());
  auto twice = bound(1, "one");
  twice.values.emplace("MODE", Secret{"x"});
  twice.non_secret = {"MODE", "MODE"};
  EXPECT_FALSE(ledger.prepare(twice).ok());
  auto missing = bound(1, "one");
  missing.values.clear();
  EXPECT_FALSE(ledger.prepare(missing).ok());
  EXPECT_FALSE(ledger.prepare(bound(1, "one", "")).ok());
  EXPECT_FALSE(ledger.prepare(bound(1, "one", "p", "not a handle")).ok());
  auto nowhere = bound(1, "one");
  nowhere.bindings["KEY"].endpoints.clear();
  EXPECT_FALSE(ledger.prepare(nowhere).ok());
  auto port = bound(1, "one");
  port.bindings["KEY"].endpoints[0].port = 70000;
  EXPECT_FALSE(ledger.prepare(port).ok());
}

TEST(Credentials, CR_ChildEnvironmentHoldsNoSecret) {  // CR-05
  CredentialLedger ledger;
  auto environment = bound(5, "one");
  environment.values.emplace("MODE", Secret{"fast"});
  environment.values.emplace("v1_TRAP", Secret{"two"});
  environment.non_secret = {"MODE"};
  const auto candidate = ledger.prepare(environment);
  ASSERT_TRUE(candidate.ok());
  EXPECT_THAT(candidate->child_env,
              testing::UnorderedElementsAre(testing::Pair("KEY", "openshell:resolve:env:v5_KEY"), testing::Pair("MODE", "fast")));
  EXPECT_EQ(candidate->warnings.size(), 1U);
}

/// What becomes of a request whose key is placed as given: the target and fields upstream gets, or why it gets nothing.
std::string rewritten(const CredentialPlacement& placement, const std::string& target, const std::string& field = {},
                      const std::string& secret = "s3cret value/+", UsedCredentials* used_out = nullptr) {
  Ledger held;
  auto environment = bound(41, secret);
  environment.bindings["KEY"].placement = placement;
  environment.bindings["KEY"].endpoints.front().path = "";
  held.install(environment);
  http::RequestHead head;
  head.method = "GET";
  head.target = target;
  const auto colon = field.find(": ");
  if (colon != std::string::npos) head.fields.add(field.substr(0, colon), field.substr(colon + 2));
  const auto used = resolve_head(head, held.current.table.get(), {"api.pay.test", Port{443}, "/x", false}, system_clock::now());
  if (!used.ok()) {
    EXPECT_EQ(head.target, target);
    return std::string{used.status().message()};
  }
  if (used_out != nullptr) *used_out = *used;
  return head.target + (head.fields.all().empty() ? "" : " " + head.fields.all().front().name + ": " + head.fields.all().front().value);
}

constexpr auto kUnresolved = "credential placeholder could not be resolved in header";
const std::string kToken = "openshell:resolve:env:v41_KEY";

TEST(Rewrite, CR_PlacementInAHeaderByName) {  // CR-34
  const CredentialPlacement header{"X-Api-Key", {}, {}};
  EXPECT_EQ(rewritten(header, "/", "x-api-key: " + kToken), "/ x-api-key: s3cret value/+");
  EXPECT_EQ(rewritten(header, "/", "Authorization: Bearer " + kToken), "/ Authorization: Bearer s3cret value/+");
  EXPECT_EQ(rewritten(header, "/", "X-Other: " + kToken), kNotDeclared);
  EXPECT_EQ(rewritten({}, "/", "X-Api-Key: " + kToken), kNotDeclared);
  EXPECT_EQ(rewritten(header, "/", "X-Api-Key: id=" + kToken), kUnresolved);
  EXPECT_EQ(rewritten(header, "/", kToken + ": x"), kUnresolved);
  // user:placeholder inside Basic
  EXPECT_EQ(rewritten({}, "/", "Authorization: Basic dXNlcjpvcGVuc2hlbGw6cmVzb2x2ZTplbnY6djQxX0tFWQ=="),
            "/ Authorization: Basic dXNlcjpzM2NyZXQgdmFsdWUvKw==");
}

TEST(Rewrite, CR_PlacementInAQueryValueIsPercentEncoded) {  // CR-33
  const CredentialPlacement query{{}, "key", {}};
  UsedCredentials used;
  EXPECT_EQ(rewritten(query, "/v?a=1&key=" + kToken + "&b=%20", {}, "s3cret value/+", &used), "/v?a=1&key=s3cret%20value%2F%2B&b=%20");
  ASSERT_EQ(used.texts.size(), 2U);  // both forms are masked where upstream echoes them
  EXPECT_EQ(used.texts[1].reveal(), "s3cret%20value%2F%2B");
  EXPECT_EQ(rewritten(query, "/v?key=openshell%3Aresolve%3Aenv%3Av41_KEY"), "/v?key=s3cret%20value%2F%2B");
  EXPECT_EQ(rewritten(query, "/v?other=" + kToken), kNotDeclared);
  EXPECT_EQ(rewritten({}, "/v?key=" + kToken), kNotDeclared);
  EXPECT_EQ(rewritten(query, "/v?" + kToken + "=1"), kUnresolved);
  EXPECT_EQ(rewritten(query, "/v?" + kToken), kUnresolved);
  EXPECT_EQ(rewritten(query, "/v?key=openshell:resolve:env:"), kUnresolved);
}

TEST(Rewrite, CR_PlacementInAPathSlot) {  // CR-86
  const CredentialPlacement path{{}, {}, "/bot{credential}/**"};
  EXPECT_EQ(rewritten(path, "/bot" + kToken + "/send", {}, "12:ab c"), "/bot12:ab%20c/send");
  EXPECT_EQ(rewritten(path, "/bot" + kToken, {}, "12:ab"), "/bot12:ab");
  EXPECT_EQ(rewritten(path, "/x/bot" + kToken, {}, "12:ab"), kNotDeclared);
  EXPECT_EQ(rewritten({}, "/bot" + kToken, {}, "12:ab"), kNotDeclared);
  EXPECT_EQ(rewritten(path, "/bot" + kToken + "/" + kToken, {}, "12:ab"), kUnresolved);
  for (const char* secret : {"a/b", "..", "a?b", "a#b", "a\\b", "x..y"})
    EXPECT_EQ(rewritten(path, "/bot" + kToken + "/x", {}, secret), kUnresolved) << secret;
  // A template that is none leaves the Authorization header.
  EXPECT_EQ(rewritten({{}, {}, "/none"}, "/bot" + kToken, {}, "12:ab"), kNotDeclared);
  EXPECT_EQ(rewritten({{}, {}, "/{credential}/{credential}"}, "/", "Authorization: " + kToken, "12:ab"), "/ Authorization: 12:ab");
}

TEST(Rewrite, CR_ResponseHeadsAreMasked) {
  http::ResponseHead head;
  head.status = 200;
  head.reason = "OK hunter2hunter2";
  head.fields.add("X", "a hunter2hunter2 b hunter2hunter2");
  UsedCredentials used;
  used.texts.emplace_back("hunter2hunter2");
  EXPECT_TRUE(mask_head(head, used));
  EXPECT_EQ(http::write_head(head), "HTTP/1.1 200 OK [CREDENTIAL]\r\nX: a [CREDENTIAL] b [CREDENTIAL]\r\n\r\n");
}

}  // namespace
}  // namespace openshell::egress
