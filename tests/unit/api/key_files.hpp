// A fresh launch-signing key on disk, as `generate-certs` writes it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "api/tokens.hpp"
#include "pki/keys.hpp"

namespace openshell::api {

class KeyFiles {
 public:
  KeyFiles() {
    EXPECT_NE(::mkdtemp(directory_.data()), nullptr);
    const auto key = *pki::PrivateKey::generate(pki::KeyKind::kEd25519);
    write("signing.pem", std::string{key.to_pem()->reveal()});
    write("public.pem", *key.public_pem());
    write("kid", *pki::key_id(key));
  }
  ~KeyFiles() { std::filesystem::remove_all(directory_); }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream{directory_ + "/" + name, std::ios::trunc} << content;
  }
  [[nodiscard]] TokenConfig config() const {
    return {directory_ + "/signing.pem", directory_ + "/public.pem", directory_ + "/kid", "openshell", std::chrono::seconds{600}};
  }

 private:
  std::string directory_ = "/tmp/openshell-keys-XXXXXX";
};

}  // namespace openshell::api
