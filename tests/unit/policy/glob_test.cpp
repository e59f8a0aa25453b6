#include "policy/glob.hpp"

#include <gtest/gtest.h>

#include <string>

namespace openshell::policy {
namespace {

Glob glob(std::string_view pattern, GlobKind kind) {
  auto compiled = Glob::compile(pattern, kind);
  EXPECT_TRUE(compiled.ok()) << pattern << ": " << compiled.status();
  return compiled.ok() ? *std::move(compiled) : Glob{};
}

struct Case {
  const char* pattern;
  const char* text;
  bool matches;
};

void check(std::initializer_list<Case> cases, GlobKind kind) {
  for (const Case& c : cases) EXPECT_EQ(glob(c.pattern, kind).matches(c.text), c.matches) << c.pattern << " on " << c.text;
}

TEST(Glob, Hosts_TheTableOfExamples) {
  check({{"api.example.test", "api.example.test", true},
         {"API.example.test", "api.example.test", true},
         {"api.example.test", "x.api.example.test", false},
         {"*.example.test", "api.example.test", true},
         {"*.example.test", "example.test", false},
         {"*.example.test", "a.b.example.test", false},
         {"**.example.test", "api.example.test", true},
         {"**.example.test", "a.b.example.test", true},
         {"**.example.test", "example.test", false},
         {"*-api.example.test", "t1-api.example.test", true},
         {"*-api.example.test", "t1.x-api.example.test", false},
         {"*.s3.*.example.test", "bkt.s3.eu1.example.test", true},
         {"*.s3.*.example.test", "s3.eu1.example.test", false},
         {"*.s3.*.example.test", "bkt.s3.dual.eu1.example.test", false},
         {"**", "a.b.c", true},
         {"*", "a", true},
         {"*", "a.b", false},
         {"*.example.test", "evil%2eexample.test", false},
         {"*.example.test", "notexample.test", false},
         {"*.example.test", ".example.test", false},
         {"**.example.test", ".example.test", false},
         {"*.example.test", "a.example.test.evil.test", false}},
        GlobKind::host);
}

TEST(Glob, L7_45_Paths_StarStaysInASegmentTwoStarsCross) {
  check({{"/v1/**", "/v1", false},
         {"/v1/**", "/v1/", true},
         {"/v1/**", "/v1/a", true},
         {"/v1/**", "/v1/a/b", true},
         {"/v1/**", "/v10/a", false},
         {"/v1/*", "/v1/a", true},
         {"/v1/*", "/v1/a/b", false},
         {"/v1/*", "/v1/", false},
         {"/repos/**", "/repos", false},
         {"/repos/**", "/repos/", true},
         {"/**/x", "/x", true},
         {"/**/x", "/a/b/x", true},
         {"/**/x", "/a/b/xy", false},
         {"/a/**/**/x", "/a/x", true},
         {"/a/**/**/x", "/a/1/2/x", true},
         {"/a/**/**", "/a", false},
         {"/a/**/**", "/a/", true},
         {"/a/**b", "/a/xb", true},
         {"/a/**b", "/a/x/b", false},
         {"/a*", "/a", true},
         {"/a*", "/abc", true},
         {"/a*", "/ab/c", false},
         {"", "/anything/at/all", true},
         {"**", "/anything", true},
         {"/**", "/", true},
         {"/", "/", true},
         {"/", "/a", false},
         {"/a?c", "/abc", true},
         {"/a?c", "/ac", false},
         {"/a?c", "/a/c", false},
         {"/v[0-4]", "/v3", true},
         {"/v[0-4]", "/v5", false},
         {"/v[!0]", "/v1", true},
         {"/v[!0]", "/v0", false},
         {"/v[!0]", "/v/", false},
         {"/{a,b*}/c", "/a/c", true},
         {"/{a,b*}/c", "/bxyz/c", true},
         {"/{a,b*}/c", "/ax/c", false},
         {"/{,a}/c", "//c", false},
         {"/{,a}*{,b}", "/", false},
         {"/{,a}*{,b}", "/ab", true},
         {"/A", "/a", false}},
        GlobKind::path);
}

TEST(Glob, D55j_PathPatternsAreComparedInCanonicalSpelling) {
  check({{"/a b", "/a%20b", true},
         {"/a%20b", "/a%20b", true},
         {"/%7euser", "/~user", true},
         {"/caf\xC3\xA9", "/caf%C3%A9", true},
         {"/caf?", "/caf%C3%A9", true},
         {"/x?y", "/x%20y", true},
         {"/x?y", "/x%20%20y", false},
         {"/x[!a]y", "/x%20y", true},
         {"/x[ -&]y", "/x%20y", true},
         {"/%41/*", "/A/b", true}},
        GlobKind::path);
  check({{"/p/g%2fr", "/p/g%2Fr", true}, {"/p/*", "/p/g%2Fr", true}, {"/p/g?r", "/p/g%2Fr", true}}, GlobKind::path_encoded_slash);
}

TEST(Glob, BIN_22_BytesAreComparedAsTheKernelGaveThem) {
  check({{"/usr/bin/curl", "/usr/bin/curl", true},
         {"**/curl", "/usr/bin/curl", true},
         {"**/curl", "/curl", true},
         {"**/curl", "/usr/bin/curlx", false},
         {"**/curl", "/usr/bin/xcurl", false},
         {"**/curl", "curl", true},
         {"**/bin/curl", "/usr/bin/curl", true},
         {"/usr/bin/*", "/usr/bin/node", true},
         {"/usr/bin/*", "/usr/bin/sub/node", false},
         {"/opt/ide/**", "/opt/ide/a/b/c", true},
         {"/opt/ide/**", "/opt/ide", false},
         {"/usr/bin/python3.?", "/usr/bin/python3.?", true}},
        GlobKind::binary);
}

TEST(Glob, Dotted_StarStopsAtADotOnly) {
  check({{"v1.*", "v1.2", true},
         {"v1.*", "v1.2.3", false},
         {"v1.**", "v1.2.3", true},
         {"*", "a/b", true},
         {"*", "a.b", false},
         {"{read,list_*}", "list_all", true},
         {"{read,{a,b}c}", "bc", true},
         {"get?", "getX", true},
         {"get?", "get.", false},
         {"", "", true},
         {"", "x", false},
         {"a\\*b", "a*b", true},
         {"tools/*", "tools/call", true}},
        GlobKind::dotted);
}

TEST(Glob, D55e_PatternsThatDoNotParseSayWhy) {
  const auto fault = [](std::string_view pattern, GlobKind kind) {
    const auto compiled = Glob::compile(pattern, kind);
    return compiled.ok() ? std::string{"ok"} : std::string{compiled.status().message()};
  };
  EXPECT_EQ(fault("/a[b", GlobKind::path), "has unclosed '['");
  EXPECT_EQ(fault("/a]", GlobKind::path), "has unmatched ']'");
  EXPECT_EQ(fault("/{a", GlobKind::path), "has unclosed '{'");
  EXPECT_EQ(fault("/a}", GlobKind::path), "has unmatched '}'");
  EXPECT_EQ(fault("/{a,{b}}", GlobKind::path), "is invalid: braces may not be nested");
  EXPECT_EQ(fault("/{a/b}", GlobKind::path), "has unclosed '{'");
  EXPECT_EQ(fault("/a[]", GlobKind::path), "is invalid: it holds an empty class");
  for (const char* pattern : {"/a/../b", "/a/./b", "/%2e%2e/b", "/a//b", "/a;b", "/a#b", "/a\\b", "/a%5Cb", "/a%2", "/a%zz", "/a\x01",
                              "/a%2Fb", "/[\xC3\xA9]", "/[z-a]"}) {
    EXPECT_NE(fault(pattern, GlobKind::path), "ok") << pattern;
  }
  EXPECT_EQ(fault("/a%2Fb", GlobKind::path_encoded_slash), "ok");
  EXPECT_NE(fault("/a%2F..%2Fb", GlobKind::path_encoded_slash), "ok");
  EXPECT_NE(fault(std::string(kMaxGlobBytes + 1, 'a'), GlobKind::dotted), "ok");
  EXPECT_EQ(fault(std::string(kMaxGlobBytes, 'a'), GlobKind::dotted), "ok");
  std::string nested;
  for (std::size_t i = 0; i <= kMaxGlobNesting; ++i) nested += '{';
  EXPECT_EQ(fault(nested, GlobKind::dotted), "is invalid: braces are nested too deeply");
  EXPECT_EQ(fault("/" + std::string(2000, '?'), GlobKind::path), "is invalid: it is too complex");
}

TEST(Glob, RankCountsWholeLiteralSegmentsThenCharacters) {
  const auto rank = [](std::string_view pattern) { return glob(pattern, GlobKind::path).rank(); };
  EXPECT_EQ(rank(""), (PathRank{0, 0}));
  EXPECT_EQ(rank("/**"), (PathRank{0, 0}));
  EXPECT_EQ(rank("/a?c"), (PathRank{0, 4}));
  EXPECT_EQ(rank("/abc"), (PathRank{1, 4}));
  EXPECT_GT(rank("/graphql"), rank(""));
  EXPECT_GT(rank("/v1/a/**"), rank("/v1/**"));
  EXPECT_EQ(rank("/a b"), rank("/a%20b"));
}

TEST(Glob, OverlapIsExact) {
  const auto paths = [](std::string_view a, std::string_view b) {
    const bool there = Glob::overlap(glob(a, GlobKind::path), glob(b, GlobKind::path));
    EXPECT_EQ(there, Glob::overlap(glob(b, GlobKind::path), glob(a, GlobKind::path))) << a << " " << b;
    return there;
  };
  EXPECT_FALSE(paths("/v[0-4]", "/v[5-9]"));
  EXPECT_TRUE(paths("/v[0-5]", "/v[5-9]"));
  EXPECT_TRUE(paths("/a?c", "/abc"));
  EXPECT_TRUE(paths("/*/b", "/a/*"));
  EXPECT_FALSE(paths("/*/b", "/a/*/c"));
  EXPECT_TRUE(paths("/**/x", "/a/**"));
  EXPECT_FALSE(paths("/v1/**", "/v2/**"));
  EXPECT_FALSE(paths("/[!a]x", "/ax"));
  EXPECT_TRUE(paths("**", "/x"));
  const auto hosts = [](std::string_view a, std::string_view b) { return Glob::overlap(glob(a, GlobKind::host), glob(b, GlobKind::host)); };
  EXPECT_TRUE(hosts("a-*.x.test", "*-b.x.test"));
  EXPECT_TRUE(hosts("**.x.test", "*.y.x.test"));
  EXPECT_FALSE(hosts("*.x.test", "*.y.x.test"));
  EXPECT_FALSE(hosts("*.x.test", "x.test"));
  EXPECT_TRUE(hosts("*.*.test", "a.b.test"));
}

// A pattern built to make a backtracking matcher explode takes linear time here: the test would not end otherwise.
TEST(Glob, HostilePatternsTakeLinearTime) {
  std::string pattern = "/";
  for (int i = 0; i < 60; ++i) pattern += "a*";
  EXPECT_FALSE(glob(pattern + "b", GlobKind::path).matches("/" + std::string(4000, 'a')));
}

}  // namespace
TEST(Glob, AHostPatternIsRefusedInWordsAboutHosts) {
  const auto why = [](std::string_view pattern) { return std::string{Glob::compile(pattern, GlobKind::host).status().message()}; };
  EXPECT_EQ(why(R"(a\.x.test)"), "is invalid: a backslash never occurs in a host name");
  EXPECT_EQ(why("\"*.x.test"), "is invalid: '\"' never occurs in a host name");
  EXPECT_EQ(why("*.x\x01.test"), "is invalid: it holds a byte that no host name has");
  EXPECT_EQ(why("*.caf\xC3\xA9.test"), "is invalid: it holds a byte that no host name has");
  EXPECT_EQ(why("[a-c]_d.x-1.test"), "");
  EXPECT_EQ(why("fd00::*"), "");
}

}  // namespace openshell::policy
