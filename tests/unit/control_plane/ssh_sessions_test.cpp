#include "api/sandboxes/ssh_sessions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/gateway/ssh_session_rows.hpp"

namespace openshell::api {
namespace {

constexpr std::int64_t kNow = 1'000'000;
const std::string kToken = "0d1c6f1e-7a51-4b3d-9f0e-0f6b1f0a9c11";

records::SshSessionRecord session(std::int64_t expires = kNow + 10) {
  records::SshSessionRecord out;
  out.set_sandbox_id("box");
  out.set_runtime_generation("gen-2");
  out.set_expires_at(expires);
  return out;
}

TEST(SshSessions, OnlyTheRightTokenForThisStartOfThisSandboxOpensIt) {
  EXPECT_TRUE(judge(session(), "box", "gen-2", kNow).ok());
  EXPECT_EQ(judge(std::nullopt, "box", "gen-2", kNow), absl::UnauthenticatedError("SSH session token not found"));
  const auto invalid = absl::UnauthenticatedError("SSH session token is not valid");
  EXPECT_EQ(judge(session(), "other", "gen-2", kNow), invalid);
  EXPECT_EQ(judge(session(), "box", "gen-3", kNow), invalid) << "a start makes older sessions worthless";
  EXPECT_EQ(judge(session(), "box", "", kNow), invalid);
  auto revoked = session();
  revoked.set_revoked(true);
  EXPECT_EQ(judge(revoked, "box", "gen-2", kNow), invalid);
}

TEST(SshSessions, ExpireAfterTheirLastSecondAndNeverWithZero) {
  EXPECT_TRUE(judge(session(kNow), "box", "gen-2", kNow).ok());
  EXPECT_EQ(judge(session(kNow - 1), "box", "gen-2", kNow), absl::UnauthenticatedError("SSH session token expired"));
  EXPECT_TRUE(judge(session(0), "box", "gen-2", kNow).ok());
}

TEST(SshSessions, TheTokenIsStoredNowhere) {
  const auto row = to_row(session(), kToken, "default");
  EXPECT_EQ(row.id, ssh_session_row_id(kToken));
  EXPECT_EQ(row.id.size(), 64U);
  EXPECT_EQ(row.scope, "box");
  for (const auto& field : {row.id, row.payload, row.workspace}) EXPECT_THAT(field, ::testing::Not(::testing::HasSubstr(kToken)));
  auto read = ssh_session_from_row(row);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->runtime_generation(), "gen-2");
}

TEST(SshSessions, AreDurableAndSweptWhenTheyAreWorthless) {
  auto store = storage::open_store("sqlite::memory:");
  ASSERT_TRUE(store.ok());
  auto revoked = session();
  revoked.set_revoked(true);
  ASSERT_TRUE((*store)
                  ->write_and_wait([&](storage::Transaction& tx) {
                    for (const auto& [token, each] : std::vector<std::pair<std::string, records::SshSessionRecord>>{
                             {"live", session()}, {"endless", session(0)}, {"expired", session(kNow - 1)}, {"revoked", revoked}}) {
                      if (auto made = tx.create(to_row(each, token, "default")); !made.ok()) return made.status();
                    }
                    return absl::OkStatus();
                  })
                  .ok());
  std::uint64_t erased = 0;
  ASSERT_TRUE((*store)
                  ->write_and_wait([&](storage::Transaction& tx) {
                    auto swept = sweep(tx, kNow);
                    erased = swept.value_or(0);
                    return swept.status();
                  })
                  .ok());
  EXPECT_EQ(erased, 2U);
  ASSERT_TRUE((*store)
                  ->read_and_wait([&](storage::Transaction& tx) {
                    for (const auto& [token, there] :
                         std::map<std::string, bool>{{"live", true}, {"endless", true}, {"expired", false}, {"revoked", false}})
                      EXPECT_EQ(tx.get(gateway::row_types::kSshSession, ssh_session_row_id(token))->has_value(), there) << token;
                    return absl::OkStatus();
                  })
                  .ok());
}

TEST(ForwardSlots, BoundATokenASandboxAndPlainForwards) {
  auto slots = std::make_shared<ForwardSlots>();
  std::vector<std::shared_ptr<ForwardSlots::Slot>> held;
  for (std::size_t i = 0; i < kMaxConnectionsPerToken; ++i) held.push_back(*slots->take("box", "t0"));
  EXPECT_EQ(slots->take("box", "t0").status(), absl::ResourceExhaustedError("SSH session connection limit reached"));
  for (std::size_t i = held.size(); i < kMaxSshConnectionsPerSandbox; ++i) held.push_back(*slots->take("box", "t" + std::to_string(i)));
  EXPECT_EQ(slots->take("box", "fresh").status(), absl::ResourceExhaustedError("sandbox SSH connection limit reached"));
  EXPECT_TRUE(slots->take("other", "fresh").ok());
  held.pop_back();
  EXPECT_TRUE(slots->take("box", "fresh").ok()) << "a stream that ends gives its place back";

  std::vector<std::shared_ptr<ForwardSlots::Slot>> plain;
  for (std::size_t i = 0; i < kMaxForwardsPerSandbox; ++i) plain.push_back(*slots->take("box", ""));
  EXPECT_EQ(slots->take("box", "").status(), absl::ResourceExhaustedError("sandbox forward limit reached"));
  plain.clear();
  EXPECT_TRUE(slots->take("box", "").ok());
}

TEST(HostKeyFingerprint, HasOneForm) {
  EXPECT_TRUE(check_host_key_fingerprint("SHA256:9a+/Z="));
  EXPECT_TRUE(check_host_key_fingerprint(std::string(kMaxFingerprintBytes, 'a')));
  for (const auto& bad :
       {std::string{}, std::string(kMaxFingerprintBytes + 1, 'a'), std::string{"SHA256:a b"}, std::string{"a\n"}, std::string{"a'"}})
    EXPECT_FALSE(check_host_key_fingerprint(bad)) << bad;
}

}  // namespace
}  // namespace openshell::api
