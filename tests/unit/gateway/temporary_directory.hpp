#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace openshell::gateway {

class TemporaryDirectory {
 public:
  TemporaryDirectory() { EXPECT_NE(::mkdtemp(path_.data()), nullptr); }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream{file(name), std::ios::trunc} << content;
    return file(name);
  }

 private:
  std::string path_ = "/tmp/openshell-gateway-XXXXXX";
};

}  // namespace openshell::gateway
