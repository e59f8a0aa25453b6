// What the transactions of attachment and deletion see of each other.
#include "actors/gateway/attachments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/gateway/records.hpp"

namespace openshell::gateway {
namespace {

using storage::Transaction;

records::SandboxRecord sandbox(const std::string& name, const std::string& workspace, const std::vector<std::string>& attached) {
  records::SandboxRecord out;
  auto& meta = *out.mutable_sandbox()->mutable_metadata();
  meta.set_id(storage::new_uuid());
  meta.set_name(name);
  meta.set_workspace(workspace);
  for (const auto& provider : attached) out.mutable_sandbox()->mutable_spec()->add_providers(provider);
  return out;
}

providers::Provider provider(const std::string& name) {
  providers::Provider out;
  out.id = storage::new_uuid();
  out.workspace = "w";
  out.name = name;
  out.type = "generic";
  return out;
}

class Attachments : public testing::Test {
 protected:
  void in(const std::function<void(Transaction&)>& work) {
    ASSERT_TRUE(store_
                    ->write_and_wait([&](Transaction& tx) {
                      work(tx);
                      return absl::OkStatus();
                    })
                    .ok());
  }
  std::unique_ptr<storage::Store> store_ = *storage::open_store("sqlite::memory:");
};

TEST_F(Attachments, AreFoundInTheirWorkspaceAlsoBeyondOnePage) {
  in([](Transaction& tx) {
    for (std::size_t i = 0; i < storage::kMaxPageSize; ++i)
      ASSERT_TRUE(tx.create(to_row(sandbox("s" + std::to_string(i), "w", {"other"}))).ok());
    ASSERT_TRUE(tx.create(to_row(sandbox("zoe", "w", {"other", "p"}))).ok());
    ASSERT_TRUE(tx.create(to_row(sandbox("anna", "w", {"p"}))).ok());
    ASSERT_TRUE(tx.create(to_row(sandbox("elsewhere", "v", {"p"}))).ok());
    EXPECT_THAT(*sandboxes_with_provider(tx, "w", "p"), testing::ElementsAre("anna", "zoe"));
    EXPECT_TRUE(sandboxes_with_provider(tx, "w", "none")->empty());
  });
}

TEST_F(Attachments, ARowThatCanNotBeReadMayHoldOne) {
  in([](Transaction& tx) {
    auto row = to_row(sandbox("s", "w", {}));
    row.payload = "\xff";
    ASSERT_TRUE(tx.create(row).ok());
    EXPECT_FALSE(sandboxes_with_provider(tx, "w", "p").ok());
  });
}

TEST_F(Attachments, WhatWasReadMustBeThereStill) {
  in([](Transaction& tx) {
    auto row = *tx.create(providers::to_row(provider("p")));
    const auto read = **providers::find_provider(tx, "w", "p");
    EXPECT_TRUE(check_unchanged(tx, {read}).ok());
    row = *tx.update(row);
    EXPECT_EQ(check_unchanged(tx, {read}).code(), absl::StatusCode::kAborted);
    ASSERT_TRUE(*tx.erase(row.type, row.id));
    EXPECT_EQ(check_unchanged(tx, {read}), absl::FailedPreconditionError("provider 'p' not found"));
    ASSERT_TRUE(tx.create(providers::to_row(provider("p"))).ok());
    EXPECT_EQ(check_unchanged(tx, {read}).code(), absl::StatusCode::kFailedPrecondition) << "a successor of the same name";
  });
}

}  // namespace
}  // namespace openshell::gateway
