// What the differential test cannot show: the bounds of the built-ins, and what sandboxes may not call.
#include "policy/rego/builtins.hpp"
#include "policy/rego/pattern.hpp"
#include "policy/rego/time_zone.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace openshell::policy::rego {
namespace {

BuiltinResult call(std::string_view name, std::vector<Value> arguments, Limits limits = {}) {
  QueryContext context(limits);
  const Builtin* builtin = find_builtin(name);
  EXPECT_NE(builtin, nullptr) << name;
  return builtin->function(context, arguments);
}

Value text(std::string_view bytes) { return Value::string(bytes); }

std::string repeated(std::string_view piece, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += piece;
  return out;
}

TEST(RegoBuiltins, EveryNameIsThereOnceAndHasAFunction) {
  std::string_view last;
  for (const Builtin* builtin : all_builtins()) {
    EXPECT_NE(builtin->function, nullptr) << builtin->name;
    EXPECT_LT(last, builtin->name);
    last = builtin->name;
  }
}

TEST(RegoBuiltins, NP_07_WhatDependsOnMoreThanItsArgumentsIsMarkedOrAbsent) {
  for (const std::string_view name : {"opa.runtime", "time.now_ns", "rand.intn", "uuid.rfc4122"}) {
    ASSERT_NE(find_builtin(name), nullptr) << name;
    EXPECT_TRUE(find_builtin(name)->nondeterministic) << name;
  }
  for (const std::string_view name : {"http.send", "net.lookup_ip_addr", "io.jwt.encode_sign", "crypto.x509.parse_certificates"}) {
    EXPECT_EQ(find_builtin(name), nullptr) << name;
  }
}

TEST(RegoBuiltins, AnExpansionOfAddressesEndsAtTheBoundOfElements) {
  EXPECT_EQ(call("net.cidr_expand", {text("10.0.0.0/28")}, {.elements = 16})->size(), 16U);
  EXPECT_TRUE(absl::IsResourceExhausted(call("net.cidr_expand", {text("10.0.0.0/28")}, {.elements = 15}).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(call("net.cidr_expand", {text("::/0")}).status()));
}

TEST(RegoBuiltins, YamlNestsUpToItsBound) {
  EXPECT_TRUE(call("yaml.unmarshal", {text(repeated("[", 128) + repeated("]", 128))}).ok());
  EXPECT_FALSE(call("yaml.unmarshal", {text(repeated("[", 129) + repeated("]", 129))}).ok());
}

TEST(RegoBuiltins, YamlAliasesThatGrowAreStopped) {
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    bomb += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 9; ++i) bomb += std::string(i == 0 ? "*" : ",*") + static_cast<char>(c - 1);
    bomb += "]\n";
  }
  const auto value = call("yaml.unmarshal", {text(bomb)});
  ASSERT_TRUE(value.ok());  // the aliases share what they name
  EXPECT_TRUE(absl::IsResourceExhausted(call("yaml.marshal", {*value}).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(call("json.marshal", {*value}).status()));
}

TEST(RegoBuiltins, GlobAlternativesNestUpToTheirBound) {
  const auto nested = [](std::size_t depth) { return text(repeated("{", depth) + "a" + repeated("}", depth)); };
  EXPECT_TRUE(call("glob.match", {nested(32), Value::null(), text("a")})->is_true());
  EXPECT_FALSE(call("glob.match", {nested(33), Value::null(), text("a")}).ok());
}

TEST(RegoBuiltins, APatternThatNeedsTooMuchMemoryIsRefused) {
  EXPECT_FALSE(call("regex.match", {text("((a{100}){100}){100}"), text("a")}).ok());
}

TEST(RegoBuiltins, MorePatternsThanAreKeptStillMatch) {
  QueryContext context;
  for (std::size_t i = 0; i <= kKeptPatterns; ++i) {
    const std::string pattern = "^" + std::to_string(i) + "$";
    const std::vector<Value> arguments = {text(pattern), text(std::to_string(i))};
    EXPECT_TRUE(find_builtin("regex.match")->function(context, arguments)->is_true());
  }
}

TEST(RegoBuiltins, PathsOfAGraphThatBranchesAreCounted) {
  std::vector<Member> graph;
  for (int i = 0; i < 40; ++i) {
    const Value next = Value::array({Value::integer(i + 1), Value::integer(-i - 1)});
    graph.push_back({Value::integer(i), next});
    graph.push_back({Value::integer(-i - 100), next});
  }
  for (int i = 1; i <= 40; ++i) graph.push_back({Value::integer(-i), Value::array({Value::integer(i + 1), Value::integer(-i - 1)})});
  const auto paths = call("graph.reachable_paths", {Value::object(std::move(graph)), Value::array({Value::integer(0)})});
  EXPECT_TRUE(absl::IsResourceExhausted(paths.status()));
}

TEST(RegoBuiltins, AZoneNameReachesNoOtherFile) {
  EXPECT_EQ(TimeZone::find("../../etc/passwd"), nullptr);
  EXPECT_EQ(TimeZone::find("/usr/share/zoneinfo/UTC"), nullptr);
  EXPECT_NE(TimeZone::find("Europe/Berlin"), nullptr);
}

TEST(RegoBuiltins, AZoneFileCutAnywhereIsReadOrRefused) {
  std::ifstream file("/usr/share/zoneinfo/Europe/Berlin", std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  ASSERT_FALSE(bytes.str().empty());
  for (std::size_t size = 0; size < bytes.str().size(); size += 7) {
    const auto zone = TimeZone::parse(bytes.str().substr(0, size));
    if (zone == nullptr) continue;
    EXPECT_LT(zone->at(0).seconds, 86400);
  }
}

TEST(RegoBuiltins, AKeySetHasABoundOfKeys) {
  const auto set = [](std::size_t keys) {
    std::string json = "{\"keys\":[";
    for (std::size_t i = 0; i < keys; ++i) json += i == 0 ? "{\"kty\":\"oct\"}" : ",{\"kty\":\"oct\"}";
    return text(json + "]}");
  };
  const Value token = text("eyJhbGciOiJSUzI1NiJ9.eyJhIjoxfQ.c2ln");
  EXPECT_TRUE(call("io.jwt.verify_rs256", {token, set(256)})->is_false());
  EXPECT_TRUE(absl::IsResourceExhausted(call("io.jwt.verify_rs256", {token, set(257)}).status()));
}

TEST(RegoBuiltins, ASchemaThatNamesItselfEnds) {
  const Value schema = text(R"({"$ref": "#"})");
  EXPECT_TRUE(absl::IsResourceExhausted(call("json.match_schema", {text("{}"), schema}).status()));
}

}  // namespace
}  // namespace openshell::policy::rego
