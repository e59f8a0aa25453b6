#include "drivers/process/admission.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace openshell::drivers::process {
namespace {

using ::testing::HasSubstr;

SandboxSpec spec() {
  SandboxSpec wanted;
  wanted.id = SandboxId{"0d6e2a50-3a3f-4f59-9d3e-0f6a4a0f3c11"};
  return wanted;
}

absl::StatusOr<Admitted> admit_with(const SandboxSpec& wanted, const ProcessDriverOptions& options = {}) {
  return admit(options, CgroupRoot{}, wanted);
}

std::string refusal(const SandboxSpec& wanted, const ProcessDriverOptions& options = {}) {
  return std::string(admit_with(wanted, options).status().message());
}

TEST(Quantities, AShareOfTheHostAQuantityOrNone) {
  EXPECT_EQ(*parse_share("50%", 1'000), 500U);
  EXPECT_EQ(*parse_share("100%", 1'000), 1'000U);
  EXPECT_EQ(*parse_share("0.01%", 1'000), 1U) << "never nothing";
  EXPECT_EQ(*parse_share("2Gi", 1'000), 2ULL << 30U);
  EXPECT_EQ(*parse_share("none", 1'000), std::nullopt);
  for (const char* wrong : {"", "%", "0%", "101%", "-5%", "x%", "5%%", "lots"}) EXPECT_FALSE(parse_share(wrong, 1'000).ok()) << wrong;
}

TEST(Quantities, Cpu) {
  for (const auto& [text, milli] :
       {std::pair{"500m", 500}, std::pair{"2", 2000}, std::pair{"1.5", 1500}, std::pair{"0.001", 1}, std::pair{"1m", 1}}) {
    EXPECT_EQ(*parse_cpu(text), static_cast<std::uint64_t>(milli)) << text;
  }
  for (const char* text : {"", "0", "0m", "-1", "x", "1x", "1 ", " 1", "m", "1mm", "inf", "nan", "1e400", "0.0001"})
    EXPECT_FALSE(parse_cpu(text).ok()) << text;
}

TEST(Quantities, Memory) {
  for (const auto& [text, bytes] : {std::pair{"512Mi", 536870912ULL}, std::pair{"1G", 1000000000ULL}, std::pair{"1048576", 1048576ULL},
                                    std::pair{"1k", 1000ULL}, std::pair{"1Ki", 1024ULL}, std::pair{"1.5Gi", 1610612736ULL}}) {
    EXPECT_EQ(*parse_memory(text), bytes) << text;
  }
  for (const char* text : {"", "0", "-1", "12XB", "1MB", "1mi", "Mi", "1 Mi", "9999E", "nan"})
    EXPECT_FALSE(parse_memory(text).ok()) << text;
}

TEST(Admission, IdentityIsOursOrANumber) {
  EXPECT_EQ(admit_with(spec())->uid, 1000u);
  SandboxSpec wanted = spec();
  wanted.identity = {"sandbox", "sandbox"};
  EXPECT_EQ(admit_with(wanted)->gid, 1000u);
  wanted.identity = {"1234", "4294967294"};
  EXPECT_EQ(admit_with(wanted)->uid, 1234u);
  EXPECT_EQ(admit_with(wanted)->gid, 4294967294u);
  for (const char* bad : {"0", "4294967295", "4294967296", "root", "-1", "1 ", "0x10", "nobody"}) {
    wanted.identity = {bad, ""};
    EXPECT_TRUE(absl::IsInvalidArgument(admit_with(wanted).status())) << bad;
    wanted.identity = {"", bad};
    EXPECT_TRUE(absl::IsInvalidArgument(admit_with(wanted).status())) << bad;
  }
}

TEST(Admission, WhatIsNotPossibleIsSaid) {
  SandboxSpec wanted = spec();
  wanted.resources.cpu_request = "1";
  EXPECT_THAT(refusal(wanted), HasSubstr("do not support resource requests"));
  wanted = spec();
  wanted.resources.memory_limit = "12XB";
  EXPECT_THAT(refusal(wanted), HasSubstr("12XB"));
  wanted = spec();
  wanted.gpu = true;
  EXPECT_TRUE(absl::IsFailedPrecondition(admit_with(wanted).status()));
  wanted.gpu_count = 0;
  EXPECT_EQ(refusal(wanted), "gpu count must be greater than 0");
  wanted = spec();
  wanted.driver_config_json = "[]";
  EXPECT_EQ(refusal(wanted), "template.driver_config.process must be an object");
  wanted.driver_config_json = "{\"mount\":[]}";
  EXPECT_THAT(refusal(wanted), HasSubstr("unknown key \"mount\""));
  wanted.driver_config_json = "{}";
  EXPECT_TRUE(admit_with(wanted).ok());
  wanted = spec();
  wanted.command = {""};
  EXPECT_FALSE(admit_with(wanted).ok());
  wanted = spec();
  wanted.id = SandboxId{"../x"};
  EXPECT_FALSE(admit_with(wanted).ok());
  wanted = spec();
  wanted.image = "some/image";
  EXPECT_TRUE(admit_with(wanted).ok());
  ProcessDriverOptions strict;
  strict.allow_image_mismatch = false;
  EXPECT_EQ(refusal(wanted, strict), "process image 'some/image' is not present locally and image pulling is disabled");
}

TEST(Admission, RequiredLimitsNeedACgroup) {
  ProcessDriverOptions strict;
  strict.require_limits = true;
  EXPECT_THAT(refusal(spec(), strict), HasSubstr("require_limits"));
  EXPECT_EQ(*admit_with(spec())->limits.processes, 2048u);
}

}  // namespace
}  // namespace openshell::drivers::process
