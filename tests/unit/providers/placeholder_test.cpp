#include "providers/placeholder.hpp"

#include <gtest/gtest.h>

#include "providers/provider.hpp"

namespace openshell::providers {
namespace {

const std::string kHandle(64, 'a');

TEST(Placeholder, CR_78_EveryFormComesBackAsItWas) {
  EXPECT_EQ(placeholder(42, "API_TOKEN"), "openshell:resolve:env:v42_API_TOKEN");
  EXPECT_EQ(placeholder(0, "API_TOKEN"), "openshell:resolve:env:API_TOKEN");
  EXPECT_EQ(*parse_placeholder(placeholder(42, "API_TOKEN")), (Placeholder{"API_TOKEN", 42, ""}));
  EXPECT_EQ(*parse_placeholder(placeholder(0, "API_TOKEN")), (Placeholder{"API_TOKEN", std::nullopt, ""}));
  EXPECT_EQ(*parse_placeholder(stable_placeholder(kHandle, "K")), (Placeholder{"K", std::nullopt, kHandle}));
  EXPECT_EQ(*parse_placeholder(placeholder(18'446'744'073'709'551'615U, "K")), (Placeholder{"K", 18'446'744'073'709'551'615U, ""}));
}

TEST(Placeholder, WhatIsNotOneIsNone) {
  for (const char* text : {"", "API_TOKEN", "openshell:resolve:env:", "openshell:resolve:env:A B",
                           "openshell:resolve:env:v18446744073709551616_K", "openshell:resolve:env:K ", "Openshell:resolve:env:K"}) {
    EXPECT_FALSE(parse_placeholder(text)) << text;
  }
}

TEST(Placeholder, NamesThatReadAsPartOfOneAreReserved) {
  for (const auto& name : {std::string{"v10_TOKEN"}, std::string{"v1_x"}, "s" + kHandle + "_K"}) {
    EXPECT_TRUE(is_reserved_name(name)) << name;
    EXPECT_FALSE(is_credential_key(name)) << name;
  }
  for (const char* name : {"v_TOKEN", "v10_", "vx_T", "API_TOKEN", "v10"}) {
    EXPECT_FALSE(is_reserved_name(name)) << name;
    EXPECT_TRUE(is_credential_key(name)) << name;
  }
  for (const char* name : {"", "1A", "A-B", "A B", "\xc3\x84"}) EXPECT_FALSE(is_credential_key(name)) << name;
}

}  // namespace
}  // namespace openshell::providers
