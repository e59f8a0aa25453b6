#include "programs/gateway/settings_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gateway/temporary_directory.hpp"

namespace openshell::gateway {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of(const std::string& body) {
  return std::string{parse_settings("[openshell]\nversion = 2\n" + body, "g.toml").status().message()};
}

TEST(SettingsFile, ReadsWhatIsThere) {
  const auto file = parse_settings(R"(
[openshell]
version = 2
[openshell.gateway]
name = "lab"
bind_address = "[::1]:1"
server_sans = ["a", "b"]
grpc_rate_limit_requests = 5
[openshell.gateway.mtls_auth]
operator_enabled = true
[openshell.supervisor]
poll_interval_secs = 30
[openshell.supervisor.network]
resolver = ["10.0.0.53:53"]
[openshell.drivers.process]
keep_on_shutdown = true
sandbox_uid_range = "1900000000-1900065535"
[openshell.drivers.docker]
whatever = 1
)",
                                   "g.toml");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->name, "lab");
  EXPECT_EQ(file->server_sans->size(), 2U);
  EXPECT_EQ(file->grpc_rate_limit_requests, 5U);
  EXPECT_FALSE(file->mtls_auth_table) << "a table with operator_enabled only leaves users to the default";
  EXPECT_TRUE(*file->operator_enabled);
  EXPECT_EQ(file->supervisor.poll_interval_secs, 30U);
  const auto process = read_process_table(file->driver_tables.at("process"));
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_TRUE(*process->keep_on_shutdown);
}

TEST(SettingsFile, CA_99_AnUnknownKeyNamesItsPlaceAndTheNearestOne) {
  EXPECT_THAT(error_of("[openshell.gateway]\nbind_adress = 'x'\n"),
              AllOf(HasSubstr("failed to parse gateway config file 'g.toml': 4:1:"),
                    HasSubstr("unknown key 'bind_adress' in [openshell.gateway]"), HasSubstr("'bind_address'")));
  EXPECT_THAT(error_of("[openshell.gateway]\ncompute_drivers = ['x']\n"), HasSubstr("it is `compute_driver`"));
  EXPECT_THAT(error_of("[openshell.gateway]\nrequire_client_auth = true\n"), HasSubstr("it is gone"));
  EXPECT_THAT(error_of("[openshell.gateway.tls]\ncert_path='a'\nkey_path='b'\nclient_ca='c'\n"),
              HasSubstr("unknown key 'client_ca' in [openshell.gateway.tls]"));
  EXPECT_THAT(error_of("[openshell.supervisor.network]\nresolvers = []\n"), HasSubstr("nearest known key is 'resolver'"));
  EXPECT_THAT(error_of("[opensell]\n"), HasSubstr("unknown key 'opensell'"));
}

TEST(SettingsFile, WrongTypesAndValues) {
  EXPECT_THAT(error_of("[openshell.gateway]\nname = 1\n"), HasSubstr("openshell.gateway.name: expected a string"));
  EXPECT_THAT(error_of("[openshell.gateway]\ndisable_tls = 'yes'\n"), HasSubstr("expected true or false"));
  EXPECT_THAT(error_of("[openshell.gateway]\nssh_session_ttl_secs = -1\n"), HasSubstr("must not be negative"));
  EXPECT_THAT(error_of("[openshell.gateway]\nserver_sans = ['a', 1]\n"), HasSubstr("expected a list of strings"));
  EXPECT_THAT(error_of("[openshell.gateway.gateway_jwt]\nsigning_key_path='a'\npublic_key_path='b'\nkid_path='c'\nttl_secs = 0\n"),
              HasSubstr("must be positive"));
  EXPECT_THAT(error_of("[openshell.gateway.tls]\ncert_path='a'\n"), HasSubstr("needs the key 'key_path'"));
  EXPECT_THAT(error_of("[openshell.gateway]\ncredential_drivers = []\n"),
              HasSubstr("omit the field to use default encrypted gateway credential storage"));
  EXPECT_THAT(error_of("[openshell.drivers]\nprocess = 1\n"),
              HasSubstr("invalid gateway config field openshell.drivers.process: expected a TOML table"));
  EXPECT_THAT(error_of("[openshell.gateway]\ndatabase_url = 'x'\n"), HasSubstr("is not allowed in the gateway config file"));
  EXPECT_THAT(error_of("[openshell.gateway\n"), HasSubstr("failed to parse gateway config file 'g.toml': 3:"));
  EXPECT_THAT(error_of("[openshell.gateway]\nname='a'\nname='b'\n"), HasSubstr("failed to parse gateway config file"));
}

TEST(SettingsFile, TheSchemaVersionIsRequired) {
  FileProblem problem = FileProblem::kNone;
  const auto error = [&](const char* text) { return std::string{parse_settings(text, "g", &problem).status().message()}; };
  EXPECT_THAT(error(""), HasSubstr("gateway config schema version is required"));
  EXPECT_EQ(problem, FileProblem::kMissingVersion);
  EXPECT_THAT(error("[openshell]\nversion = 1"), HasSubstr("unsupported gateway config version 1; this build requires version 2"));
  EXPECT_EQ(problem, FileProblem::kLegacySchema);
  (void)error("[openshell]\nversion = 3");
  EXPECT_EQ(problem, FileProblem::kFutureVersion);
}

TEST(SettingsFile, OnlyARegularFileIsOpened) {
  const TemporaryDirectory directory;
  FileProblem problem = FileProblem::kNone;
  const auto error = [&](const std::string& path) { return std::string{read_settings_file(path, &problem).status().message()}; };
  EXPECT_THAT(error(directory.file("none")), HasSubstr("failed to read gateway config file"));
  EXPECT_EQ(problem, FileProblem::kMissingPath);
  EXPECT_THAT(error(directory.path()), HasSubstr("is not a regular file (directory)"));
  const auto real = directory.write("real", "[openshell]\nversion = 2\n");
  EXPECT_TRUE(read_settings_file(real).ok());
  std::filesystem::create_symlink(real, directory.file("link"));
  EXPECT_THAT(error(directory.file("link")), HasSubstr("is not a regular file (symlink)"));
  EXPECT_EQ(problem, FileProblem::kNonRegularPath);
}

TEST(ProcessTable, IsReadStrictlyOnceSelected) {
  EXPECT_THAT(std::string{read_process_table("sandbox_pid_limit = 1").status().message()},
              AllOf(HasSubstr("invalid [openshell.drivers.process] table"), HasSubstr("nearest known key is 'sandbox_pids_limit'")));
  EXPECT_THAT(std::string{read_process_table("sandbox_pids_limit = 0").status().message()}, HasSubstr("must be positive"));
}

TEST(NearestName, WithinTwoEdits) {
  EXPECT_EQ(nearest_name("bind_adress", {"name", "bind_address"}), "bind_address");
  EXPECT_EQ(nearest_name("xyz", {"name"}), "");
  EXPECT_EQ(nearest_name("a", {"b"}), "");
}

}  // namespace
}  // namespace openshell::gateway
