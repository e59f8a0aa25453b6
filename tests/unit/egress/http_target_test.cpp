#include "egress/http/target.hpp"

#include <gmock/gmock.h>

namespace openshell::egress::http {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string path_of(const std::string& raw, bool slash = false) {
  const auto target = canonical_target(raw, slash);
  return target.ok() ? target->str() : "error: " + std::string{target.status().message()};
}

TEST(HttpTarget, L7_OneFormForEveryPath) {
  EXPECT_EQ(path_of("/a//b/./c"), "/a/b/c");
  EXPECT_EQ(path_of("/a/%2e%2e/b"), "/b");
  EXPECT_EQ(path_of("/a;jsessionid=1/b"), "/a/b");
  EXPECT_EQ(path_of("/x/..;/y"), "/y");
  EXPECT_EQ(path_of("/%7Euser/%41"), "/~user/A");
  EXPECT_EQ(path_of("/a%20b"), "/a%20b");
  EXPECT_EQ(path_of("/p/g%2fr", true), "/p/g%2Fr");
  EXPECT_EQ(path_of("/public/%252e%252e/secret"), "/public/%252e%252e/secret");
  EXPECT_EQ(path_of("/a/.."), "/");
  EXPECT_EQ(path_of("/a/b/.."), "/a/");
  EXPECT_EQ(path_of("/a/b/."), "/a/b/");
  EXPECT_EQ(path_of("/a/b/"), "/a/b/");
  EXPECT_EQ(path_of("/"), "/");
  EXPECT_EQ(path_of("http://h.test"), "/");
  EXPECT_EQ(path_of("http://h.test/x?y=%zz"), "/x?y=%zz");
  EXPECT_EQ(path_of("/a/http://b"), "/a/http:/b");
  EXPECT_EQ(path_of("/s\xC3\xA9"), "error: request-target contains raw non-ASCII bytes; non-ASCII must be percent-encoded");
  EXPECT_EQ(path_of("/s%C3%A9"), "/s%C3%A9");
}

TEST(HttpTarget, L7_WhatHasNoOneFormIsRefused) {
  EXPECT_THAT(path_of("/p/g%2Fr"), HasSubstr("encoded '/'"));
  EXPECT_THAT(path_of("/a/%2e%2e%2fb", true), HasSubstr("after canonicalization"));
  EXPECT_THAT(path_of("/.."), HasSubstr("escape the path root"));
  EXPECT_THAT(path_of("/public/../../x"), HasSubstr("escape the path root"));
  EXPECT_THAT(path_of("*"), HasSubstr("not a valid origin-form"));
  EXPECT_THAT(path_of("host.test:443"), HasSubstr("not a valid origin-form"));
  EXPECT_THAT(path_of("/a\\b"), HasSubstr("backslash"));
  EXPECT_THAT(path_of("/a%5Cb"), HasSubstr("backslash"));
  EXPECT_THAT(path_of("/a%0ab"), HasSubstr("control byte"));
  EXPECT_THAT(path_of("/a%"), HasSubstr("invalid percent-encoded"));
  EXPECT_THAT(path_of("/a%4"), HasSubstr("invalid percent-encoded"));
  EXPECT_THAT(path_of("/a%zz"), HasSubstr("invalid percent-encoded"));
  EXPECT_THAT(path_of("/a#b"), HasSubstr("fragment"));
  EXPECT_THAT(path_of("/%ff"), HasSubstr("valid UTF-8"));
  EXPECT_THAT(path_of("/%c0%af"), HasSubstr("valid UTF-8"));
}

TEST(HttpTarget, L7_LengthAtItsLimit) {
  EXPECT_EQ(path_of("/" + std::string(kMaxPathBytes - 1, 'a')).size(), kMaxPathBytes);
  EXPECT_THAT(path_of("/" + std::string(kMaxPathBytes, 'a')), HasSubstr("maximum length"));
}

// Judging the canonical form again gives the same form: nothing is decoded twice.
TEST(HttpTarget, CanonicalFormIsAFixedPoint) {
  for (const char* raw : {"/a//b/./c", "/%7Euser/%41", "/public/%252e%252e/secret", "/a/..", "/s%C3%A9", "/a%20b%3F", "/[x]"}) {
    EXPECT_EQ(path_of(path_of(raw)), path_of(raw)) << raw;
  }
}

TEST(HttpTarget, QueriesAreDecodedInOrder) {
  EXPECT_THAT(parse_query("a=1&b=x+y&a=%41&c&=d").value(),
              ElementsAre(Pair("a", "1"), Pair("b", "x y"), Pair("a", "A"), Pair("c", ""), Pair("", "d")));
  EXPECT_FALSE(parse_query("a=%4").ok());
  EXPECT_FALSE(parse_query("a=%ff").ok());
}

}  // namespace
}  // namespace openshell::egress::http
