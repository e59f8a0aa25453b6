#include "actors/introspection/shown_text.hpp"

#include <gtest/gtest.h>

namespace openshell {
namespace {

TEST(ShownText, IsOneLineOfValidTextWithoutControls) {
  EXPECT_EQ(shown_text("a\nb\tc\x1b[31m\x7f"), "a b c [31m ");
  EXPECT_EQ(shown_text("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(shown_text("\xff\xc3(\xe2\x82"),
            "?"
            "?(?"
            "?");
  EXPECT_EQ(shown_text("\xc2\x9b"),
            "?"
            "?")
      << "a C1 control is a terminal escape";
  EXPECT_EQ(shown_text("\xed\xa0\x80"),
            "?"
            "?"
            "?")
      << "half of a surrogate";
}

TEST(ShownText, IsCutBetweenCharactersAtItsBound) {
  EXPECT_EQ(shown_text(std::string(1'000, 'x')).size(), kMaxShownText);
  EXPECT_EQ(shown_text(std::string(255, 'x') + "\xc3\xbc"), std::string(255, 'x'));
  EXPECT_EQ(shown_text("abc", 2), "ab");
}

// Nothing secret stands in a state summary or an error, even where somebody wrote one into it.
TEST(ShownText, MasksWhatLooksLikeASecret) {
  for (const char* text : {"refused: Bearer sk-live-abcdefgh", "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.abcdefghijk was refused"}) {
    const auto shown = shown_text(text);
    EXPECT_EQ(shown.find("abcdefgh"), std::string::npos) << shown;
  }
}

}  // namespace
}  // namespace openshell
