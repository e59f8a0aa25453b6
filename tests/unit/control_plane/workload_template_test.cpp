#include "actors/gateway/workload_template.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/gateway/create_request.hpp"
#include "openshell.pb.h"

namespace openshell::gateway {
namespace {

using testing::HasSubstr;

pb::CreateSandboxTemplateRequest request() {
  pb::CreateSandboxTemplateRequest out;
  out.mutable_template_()->mutable_metadata()->set_name("small");
  out.mutable_template_()->mutable_spec()->mutable_workload();
  return out;
}

std::string refusal(const pb::CreateSandboxTemplateRequest& wrong) {
  return std::string{check_workload_template(wrong, "default").message()};
}

TEST(WorkloadTemplate, GW_89_WhatIsMissingIsNamed) {
  EXPECT_TRUE(check_workload_template(request(), "default").ok());
  EXPECT_EQ(refusal({}), "template is required");
  auto nameless = request();
  nameless.mutable_template_()->mutable_metadata()->clear_name();
  EXPECT_EQ(refusal(nameless), "template.metadata.name is required");
  auto empty = request();
  empty.mutable_template_()->clear_spec();
  EXPECT_EQ(refusal(empty), "sandbox template spec is required");
  empty.mutable_template_()->mutable_spec();
  EXPECT_EQ(refusal(empty), "sandbox template workload is required");
  auto elsewhere = request();
  elsewhere.mutable_template_()->mutable_metadata()->set_workspace("other");
  EXPECT_EQ(refusal(elsewhere), "template.metadata.workspace must match request workspace");
}

TEST(WorkloadTemplate, GW_89_ReadyWithinIsAValidTimeAboveZero) {
  auto timed = request();
  auto& within = *timed.mutable_template_()->mutable_spec()->mutable_desired_service_level()->mutable_startup()->mutable_ready_within();
  EXPECT_THAT(refusal(timed), HasSubstr("ready_within must be greater than zero"));
  within.set_nanos(1);
  EXPECT_EQ(refusal(timed), "");
  within.set_seconds(-1);
  EXPECT_THAT(refusal(timed), HasSubstr("not a valid duration"));
  within.set_nanos(0);
  EXPECT_THAT(refusal(timed), HasSubstr("must be greater than zero"));
  within.set_seconds(315'576'000'001);
  EXPECT_THAT(refusal(timed), HasSubstr("not a valid duration"));
}

TEST(WorkloadTemplate, WhatItMakesPassesTheChecksOfEverySandbox) {
  auto wrong = request();
  (*wrong.mutable_template_()->mutable_spec()->mutable_workload()->mutable_environment())["OPENSHELL_X"] = "1";
  EXPECT_THAT(refusal(wrong), HasSubstr("reserved"));
  auto no_gpu = request();
  no_gpu.mutable_template_()->mutable_spec()->mutable_workload()->mutable_resources()->mutable_gpu()->set_count(0);
  EXPECT_THAT(refusal(no_gpu), HasSubstr("gpu count must be greater than 0"));
}

TEST(WorkloadTemplate, GW_89_ItsWorkloadLiesUnderTheRequestsOwnChoices) {
  auto stored = request().template_();
  auto& workload = *stored.mutable_spec()->mutable_workload();
  workload.set_image("image:1");
  (*workload.mutable_environment())["COLOUR"] = "blue";
  workload.mutable_resources()->set_memory("256Mi");
  workload.mutable_resources()->mutable_gpu();
  stored.mutable_metadata()->set_resource_version(7);
  pb::CreateSandboxRequest create;
  create.set_workload_template("small");
  create.mutable_spec()->add_command("true");
  create.mutable_spec()->set_restart_policy(pb::SANDBOX_RESTART_POLICY_ALWAYS);
  (*create.mutable_annotations())["internal.openshell.ai/workload-template-version"] = "forged";
  expand_template(stored, create);
  const auto& spec = create.spec();
  EXPECT_EQ(spec.template_().image(), "image:1");
  EXPECT_EQ(spec.environment().at("COLOUR"), "blue");
  const auto& limits = spec.template_().resources().fields().at("limits").struct_value().fields();
  EXPECT_EQ(limits.at("memory").string_value(), "256Mi");
  EXPECT_FALSE(limits.contains("cpu"));
  EXPECT_TRUE(spec.resource_requirements().has_gpu());
  EXPECT_FALSE(spec.resource_requirements().gpu().has_count());
  EXPECT_EQ(spec.command(0), "true");
  EXPECT_EQ(spec.restart_policy(), pb::SANDBOX_RESTART_POLICY_ALWAYS);
  Creation creation;
  creation.workspace = "default";
  creation.name = "box";
  const auto record = new_record(create, creation);
  EXPECT_EQ(record.sandbox().created_from_workload_template().name(), "small");
  EXPECT_EQ(record.sandbox().created_from_workload_template().resource_version(), "7");
  EXPECT_TRUE(record.sandbox().metadata().annotations().empty()) << "how it was made is not what the user annotated";
}

TEST(WorkloadTemplate, GW_89_WhatTheTemplateDecidesIsRefusedBesideIt) {
  pb::CreateSandboxRequest create;
  create.set_workload_template("small");
  EXPECT_TRUE(check_template_use(create).ok()) << "without a spec";
  create.mutable_spec();
  EXPECT_TRUE(check_template_use(create).ok()) << "with an empty one";
  const auto refused = [&](const std::function<void(pb::SandboxSpec&)>& set) {
    auto wrong = create;
    set(*wrong.mutable_spec());
    return std::string{check_template_use(wrong).message()};
  };
  EXPECT_EQ(refused([](auto& spec) { spec.set_log_level("debug"); }), "spec.log_level cannot be set when workload_template is set");
  EXPECT_EQ(refused([](auto& spec) { (*spec.mutable_environment())["A"] = "1"; }),
            "spec.environment cannot be set when workload_template is set");
  EXPECT_EQ(refused([](auto& spec) { spec.mutable_template_(); }), "spec.template cannot be set when workload_template is set");
  EXPECT_EQ(refused([](auto& spec) { spec.mutable_resource_requirements(); }),
            "spec.resource_requirements cannot be set when workload_template is set");
  EXPECT_EQ(refused([](auto& spec) { spec.add_providers("p"); }), "");
}

TEST(WorkloadTemplate, TheRowsMetadataWinsOverWhatTheClientSent) {
  auto sent = request().template_();
  sent.mutable_metadata()->set_id("forged");
  sent.mutable_metadata()->set_resource_version(99);
  (*sent.mutable_metadata()->mutable_labels())["team"] = "red";
  auto row = to_row(sent, "default", "11111111-1111-4111-8111-111111111111");
  row.resource_version = 1;
  row.created_at_ms = 1'500;
  const auto read = template_from_row(row);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->metadata().id(), "11111111-1111-4111-8111-111111111111");
  EXPECT_EQ(read->metadata().resource_version(), 1U);
  EXPECT_EQ(read->metadata().workspace(), "default");
  EXPECT_EQ(read->metadata().created_time().seconds(), 1);
  EXPECT_EQ(row.labels.at("team"), "red");
}

}  // namespace
}  // namespace openshell::gateway
