#include "api/errors.hpp"

#include <gtest/gtest.h>

#include "rpc_status.pb.h"
#include "storage/store.hpp"

namespace openshell::api {
namespace {

google::rpc::Status details(const absl::Status& status) {
  google::rpc::Status wire;
  EXPECT_TRUE(wire.ParseFromString(status_details(status)));
  return wire;
}

TEST(Errors, DetailsCarryExactlyTheCodeAndTextOfTheCall) {
  const auto wire = details(invalid_field("spec.environment", "too many"));
  EXPECT_EQ(wire.code(), 3);
  EXPECT_EQ(wire.message(), "too many");
  google::rpc::BadRequest bad;
  google::rpc::ErrorInfo info;
  for (const auto& detail : wire.details()) {
    if (detail.Is<google::rpc::BadRequest>()) detail.UnpackTo(&bad);
    if (detail.Is<google::rpc::ErrorInfo>()) detail.UnpackTo(&info);
  }
  ASSERT_EQ(bad.field_violations_size(), 1);
  EXPECT_EQ(bad.field_violations(0).field(), "spec.environment");
  EXPECT_EQ(info.reason(), "INVALID_ARGUMENT");
  EXPECT_EQ(info.domain(), "openshell.nvidia.com");
  EXPECT_EQ(status_details(absl::NotFoundError("x")), "");
}

TEST(Errors, AConflictNamesTheVersionToReadAgain) {
  const auto status = version_conflict("update provider", 7);
  EXPECT_EQ(status.message(), "update provider failed due to concurrent modification (current resource_version: 7)");
  google::rpc::ErrorInfo info;
  details(status).details(0).UnpackTo(&info);
  EXPECT_EQ(info.metadata().at("current_resource_version"), "7");
  EXPECT_EQ(info.metadata().at("recovery"), "REFRESH_STATE");
  EXPECT_EQ(version_conflict("x", std::nullopt).message(), "x failed due to concurrent modification (current resource_version: unknown)");
}

TEST(Errors, RetryInfoIsADuration) {
  google::rpc::RetryInfo info;
  details(with_retry(absl::UnavailableError("x"), std::chrono::milliseconds{1500})).details(0).UnpackTo(&info);
  EXPECT_EQ(info.retry_delay().seconds(), 1);
  EXPECT_EQ(info.retry_delay().nanos(), 500'000'000);
}

TEST(Errors, StorageErrorsBecomePublicOnes) {
  auto store = *storage::open_store("sqlite::memory:");
  storage::Object object;
  object.type = "thing";
  object.id = "x";
  object.resource_version = 4;
  const auto lost = store->write_and_wait([&](storage::Transaction& tx) { return tx.update(object).status(); });
  EXPECT_EQ(from_storage("save", lost).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(from_storage("save", absl::UnavailableError("disk")).message(), "save failed: disk");
  EXPECT_EQ(from_storage("save", absl::UnavailableError("disk")).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace openshell::api
