#include "storage/labels.hpp"

#include <gtest/gtest.h>

namespace openshell::storage {
namespace {

std::string error_of(std::string_view selector) { return std::string{parse_label_selector(selector).status().message()}; }

TEST(LabelSelector, TrimsBlanksAtEveryLevelAndSkipsEmptyPairs) {
  EXPECT_EQ(*parse_label_selector(" team = blue , tier=gold,"), (Labels{{"team", "blue"}, {"tier", "gold"}}));
  EXPECT_TRUE(parse_label_selector("   ")->empty());
  EXPECT_EQ(*parse_label_selector("a=1,a=2"), (Labels{{"a", "2"}}));
  EXPECT_EQ(*parse_label_selector("a="), (Labels{{"a", ""}}));
}

TEST(LabelSelector, SaysWhatIsWrong) {
  EXPECT_EQ(error_of("team"), "invalid label selector: expected 'key=value', got 'team'");
  EXPECT_EQ(error_of("=x"), "invalid label selector: key cannot be empty in '=x'");
  EXPECT_EQ(error_of("acme.io/=x"), "label key name segment cannot be empty: 'acme.io/'");
}

TEST(LabelSelector, Takes64PairsAndNotOneMore) {
  std::string text;
  for (int i = 0; i < 64; ++i) text += "k" + std::to_string(i) + "=v,";
  EXPECT_EQ(parse_label_selector(text)->size(), kMaxSelectorPairs);
  EXPECT_EQ(error_of(text + "k64=v"), "label selector exceeds 64 pair limit");
}

TEST(LabelKey, LimitsOfNameAndPrefix) {
  EXPECT_TRUE(check_label_key(std::string(63, 'a')).ok());
  EXPECT_FALSE(check_label_key(std::string(64, 'a')).ok());
  EXPECT_TRUE(check_label_key("acme.io/" + std::string(63, 'a')).ok());
  EXPECT_FALSE(check_label_key(std::string(190, 'p') + "/" + std::string(63, 'a')).ok());
  for (const char* bad : {"", "-a", "a-", "a b", "A.io/x", "/x", ".io/x", "a..b/x", "a/b/c", "\xc3\xa4"})
    EXPECT_FALSE(check_label_key(bad).ok()) << bad;
  for (const char* good : {"a", "A1", "a.b_c-d", "acme.io/A"}) EXPECT_TRUE(check_label_key(good).ok()) << good;
}

TEST(LabelValue, EmptyOrUpTo63) {
  EXPECT_TRUE(check_label_value("k", "").ok());
  EXPECT_TRUE(check_label_value("k", std::string(63, 'v')).ok());
  EXPECT_FALSE(check_label_value("k", std::string(64, 'v')).ok());
  EXPECT_FALSE(check_label_value("k", "-v").ok());
}

TEST(Annotations, CountAndValueBounds) {
  Labels annotations;
  for (int i = 0; i < 128; ++i) annotations["k" + std::to_string(i)] = std::string(kMaxAnnotationValueBytes, ' ');
  EXPECT_TRUE(check_annotations(annotations).ok());
  annotations["one-more"] = "";
  EXPECT_FALSE(check_annotations(annotations).ok());
  EXPECT_FALSE(check_annotations({{"k", std::string(kMaxAnnotationValueBytes + 1, ' ')}}).ok());
}

}  // namespace
}  // namespace openshell::storage
