#include "storage/page_token.hpp"

#include <gtest/gtest.h>

namespace openshell::storage {
namespace {

const std::string kKey(32, 'k');
const Cursor kCursor{1'700'000'000'123, "name", "workspace", "0f1e2d3c-0000-4000-8000-000000000001"};

TEST(PageToken, ComesBackAsItWas) {
  const auto cursor = read_page_token(kKey, "List\nws", make_page_token(kKey, "List\nws", kCursor));
  ASSERT_TRUE(cursor.ok() && *cursor);
  EXPECT_EQ((*cursor)->position, kCursor.position);
  EXPECT_EQ((*cursor)->name, kCursor.name);
  EXPECT_EQ((*cursor)->workspace, kCursor.workspace);
  EXPECT_EQ((*cursor)->id, kCursor.id);
  EXPECT_FALSE(read_page_token(kKey, "List\nws", "")->has_value());
}

TEST(PageToken, OfOtherParametersOrAnotherDatabaseIsRefused) {
  const std::string token = make_page_token(kKey, "List\nws", kCursor);
  EXPECT_FALSE(read_page_token(kKey, "List\nother", token).ok());
  EXPECT_FALSE(read_page_token(std::string(32, 'x'), "List\nws", token).ok());
}

TEST(PageToken, EveryChangedCharacterIsSeen) {
  const std::string token = make_page_token(kKey, "b", kCursor);
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::string damaged = token;
    damaged[i] = damaged[i] == 'A' ? 'B' : 'A';
    const auto cursor = read_page_token(kKey, "b", damaged);
    if (cursor.ok()) {
      // Only the unused bits of the last character may differ without a trace.
      EXPECT_GE(i + 2, token.size()) << i;
    }
    EXPECT_FALSE(read_page_token(kKey, "b", token.substr(0, i)).ok() && i > 0) << i;
  }
}

TEST(PageToken, StaysWithin256BytesWhateverTheName) {
  Cursor cursor = kCursor;
  cursor.name = std::string(253, 'n');
  const std::string token = make_page_token(kKey, "b", cursor);
  EXPECT_LE(token.size(), kMaxPageTokenBytes);
  const auto back = read_page_token(kKey, "b", token);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ((*back)->name, "");
  EXPECT_EQ((*back)->id, kCursor.id);
  EXPECT_FALSE(read_page_token(kKey, "b", std::string(kMaxPageTokenBytes + 4, 'A')).ok());
}

}  // namespace
}  // namespace openshell::storage
