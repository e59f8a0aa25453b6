#include "host.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "isolation/boundary/fence.hpp"
#include "pki/certificate.hpp"
#include "pki/keys.hpp"
#include "process_driver.pb.h"

namespace openshell::drivers::test {
namespace fs = std::filesystem;

constexpr auto kBound = std::chrono::seconds{20};

std::string read_text(const std::string& path) {
  std::ifstream file{path};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string value(const std::string& report, const std::string& key) {
  std::istringstream lines{report};
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, key.size() + 1, key + "=") == 0) return line.substr(key.size() + 1);
  }
  return "(no " + key + ")";
}

std::vector<int> processes_with_uid(std::uint32_t first, std::uint32_t last) {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    struct stat info {};
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos || stat(entry.path().c_str(), &info) != 0) continue;
    std::istringstream status{read_text(entry.path().string() + "/status")};
    for (std::string line; std::getline(status, line);) {
      std::uint32_t uid = 0;
      if (sscanf(line.c_str(), "Uid:\t%u", &uid) == 1 && uid >= first && uid <= last) found.push_back(std::stoi(name));
    }
  }
  return found;
}

std::string pki_ca() { return pki::CertificateAuthority::create({.common_name = "test"})->certificate().to_pem(); }

Marks read_marks(const std::string& state) {
  internal::process_driver::v1::Generation record;
  EXPECT_TRUE(record.ParseFromString(read_text(state + "/driver/generation")));
  return {record.init().pid(), record.supervisor().pid(), record.monitor().pid()};
}

std::string boundary_digest(const std::string& generation, const std::string& evidence) {
  return boundary::evidence_digest(generation, evidence);
}

Host::Host() {
  char name[] = "/tmp/osd.XXXXXX";
  path = mkdtemp(name);
  chmod(path.c_str(), 0711);
  fs::create_directories(path + "/bundle");
  fs::copy_file(OPENSHELL_STAND_IN, path + "/bundle/stand-in");
}

Host::~Host() {
  watch_.reset();
  if (driver_ != nullptr) {
    const auto all = driver_->list();
    for (const Observation& seen : *all) EXPECT_TRUE(driver_->remove(seen.id).ok());
  }
  driver_.reset();
  fs::remove_all(path);
}

ProcessDriverOptions Host::options() const {
  ProcessDriverOptions options;
  options.state_dir = path + "/state";
  options.runtime_dir = path + "/run";
  options.bundle_dir = path + "/bundle";
  options.supervisor_path = path + "/bundle/stand-in";
  options.monitor_path = OPENSHELL_BIN_DIR "/openshell-sandbox-monitor";
  options.init_argv = {"/.openshell/bin/stand-in", "as-sandbox"};
  options.gateway_endpoint = "https://127.0.0.1:1";
  options.driver_version = "test";
  options.slots_dir = path + "/slots";
  options.sandbox_uid_range = {1'950'000'000, 1'950'000'127};
  options.stop_timeout_secs = 2;
  adjust(options);
  return options;
}

void Host::start() {
  auto made = make_process_driver(options());
  ASSERT_TRUE(made.ok()) << made.status().message();
  driver_ = std::move(*made);
  {
    const std::lock_guard lock{mutex_};
    events_.clear();
  }
  watch_ = driver_->watch([this](const WatchEvent& event) {
    const std::lock_guard lock{mutex_};
    events_.push_back(event);
    changed_.notify_all();
  });
}

void Host::forget() {
  watch_.reset();
  driver_.reset();
}

std::string Host::wait_for(const std::string& id, const std::string& reason) {
  std::unique_lock lock{mutex_};
  std::string message, last;
  const bool seen = changed_.wait_for(lock, kBound, [&] {
    for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
      if (event->id.str() != id || !event->observed) continue;
      last = event->observed->conditions.front().reason + ": " + event->observed->conditions.front().message;
      message = event->observed->conditions.front().message;
      return event->observed->conditions.front().reason == reason;
    }
    return false;
  });
  EXPECT_TRUE(seen) << "waited for " << reason << ", last was " << last << "\n"
                    << read_text(state(id) + "/driver/launcher.log") << read_text(state(id) + "/driver/sandbox.log");
  return message;
}

void Host::wait_deleted(const std::string& id) {
  std::unique_lock lock{mutex_};
  EXPECT_TRUE(changed_.wait_for(lock, kBound, [&] {
    for (const WatchEvent& event : events_) {
      if (event.id.str() == id && event.deleted) return true;
    }
    return false;
  }));
}

std::string Host::report(const std::string& id) {
  const std::string file = state(id) + "/workload/workspace/report";
  const auto deadline = std::chrono::steady_clock::now() + kBound;
  // Files of subordinate ids are not ours to read.
  if (access((state(id) + "/workload").c_str(), X_OK) != 0) return {};
  while (access(file.c_str(), F_OK) != 0 && std::chrono::steady_clock::now() < deadline) usleep(2000);
  return read_text(file);
}

SandboxSpec spec(const std::string& id) {
  SandboxSpec wanted;
  wanted.id = SandboxId{id};
  wanted.name = "test-" + id.substr(0, 8);
  wanted.workspace = "default";
  wanted.command = {"/bin/sleep", "1000"};
  return wanted;
}

LaunchAuthentication launch(const std::string& generation) {
  static const auto key = pki::PrivateKey::generate(pki::KeyKind::kEd25519).value();
  LaunchAuthentication made;
  made.session_id = SessionId{"6f1c2a34-0000-4000-8000-0123456789ab"};
  made.runtime_generation = GenerationId{generation};
  made.gateway_id = "openshell";
  made.gateway_token = Secret{"gateway-token-that-must-not-leak"};
  made.sandbox_token = Secret{"sandbox-token-that-must-not-leak"};
  made.verification_keys = {{pki::key_id(key).value(), key.public_pem().value()}};
  return made;
}

}  // namespace openshell::drivers::test
