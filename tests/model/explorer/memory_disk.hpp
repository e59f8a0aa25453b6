// A disk in memory that behaves like one: what was not synced may be lost in a crash, in part or whole, and every operation can fail.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/outbox/journal_disk.hpp"

namespace openshell::model {

/// What is on the disk; outlives the processes that open it.
struct DiskImage {
  struct File {
    std::string synced;
    std::string unsynced;  // follows it
  };
  std::map<std::string, File> files;
  bool locked = false;
  /// Asked before each operation; an error makes it fail. "append" may be asked a second time, with "sync", when the bytes are written and
  /// not synced.
  std::function<absl::Status(const std::string& operation)> fault = [](const std::string&) { return absl::OkStatus(); };
  /// Told what has become durable by an append.
  std::function<void(std::string_view bytes)> synced = [](std::string_view) {};

  /// Told what was not synced and is there after a crash nevertheless.
  std::function<void(std::string_view bytes)> kept = [](std::string_view) {};

  /// The machine or the process dies. Of what was not synced, `keep(size)` bytes of each file are there afterwards.
  void crash(const std::function<std::size_t(std::size_t)>& keep) {
    locked = false;
    for (auto& [name, file] : files) {
      const auto rest = file.unsynced.substr(0, keep(file.unsynced.size()));
      file.synced += rest;
      file.unsynced.clear();
      kept(rest);
    }
  }
};

/// One process's opening of it.
class MemoryDisk final : public supervisor::JournalDisk {
 public:
  explicit MemoryDisk(std::shared_ptr<DiskImage> image) : image_{std::move(image)} {}
  ~MemoryDisk() override {
    if (mine_) image_->locked = false;
  }
  MemoryDisk(const MemoryDisk&) = delete;
  MemoryDisk& operator=(const MemoryDisk&) = delete;

  absl::Status open() override {
    if (auto status = image_->fault("open"); !status.ok()) return status;
    if (!mine_ && image_->locked) return absl::UnavailableError("another process has it");
    mine_ = image_->locked = true;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> list() override {
    if (auto status = image_->fault("list"); !status.ok()) return status;
    std::vector<std::string> out;
    for (const auto& [name, file] : image_->files) out.push_back(name);
    return out;
  }
  absl::StatusOr<std::string> read(const std::string& name, std::size_t limit) override {
    if (auto status = image_->fault("read"); !status.ok()) return status;
    const auto found = image_->files.find(name);
    if (found == image_->files.end()) return absl::NotFoundError(name);
    auto bytes = found->second.synced + found->second.unsynced;
    if (bytes.size() > limit) return absl::ResourceExhaustedError(name);
    return bytes;
  }
  absl::Status create(const std::string& name, std::string_view bytes) override {
    if (auto status = image_->fault("create"); !status.ok()) return status;
    if (!image_->files.emplace(name, DiskImage::File{std::string{bytes}, {}}).second) return absl::AlreadyExistsError(name);
    return absl::OkStatus();
  }
  absl::Status append(const std::string& name, std::string_view bytes, bool durable) override {
    if (auto status = image_->fault("append"); !status.ok()) return status;
    const auto found = image_->files.find(name);
    if (found == image_->files.end()) return absl::NotFoundError(name);
    auto& file = found->second;
    file.unsynced += bytes;
    if (!durable) return absl::OkStatus();
    if (auto status = image_->fault("sync"); !status.ok()) return status;
    file.synced += file.unsynced;
    file.unsynced.clear();
    image_->synced(bytes);
    return absl::OkStatus();
  }
  absl::Status cut(const std::string& name, std::size_t size) override {
    if (auto status = image_->fault("cut"); !status.ok()) return status;
    auto& file = image_->files.at(name);
    file.synced = (file.synced + file.unsynced).substr(0, size);
    file.unsynced.clear();
    return absl::OkStatus();
  }
  absl::Status copy(const std::string& from, const std::string& to) override {
    if (auto status = image_->fault("copy"); !status.ok()) return status;
    image_->files[to] = image_->files.at(from);
    return absl::OkStatus();
  }
  absl::Status rename(const std::string& from, const std::string& to) override {
    if (auto status = image_->fault("rename"); !status.ok()) return status;
    image_->files[to] = std::move(image_->files.at(from));
    image_->files.erase(from);
    return absl::OkStatus();
  }
  absl::Status remove(const std::string& name) override {
    if (auto status = image_->fault("remove"); !status.ok()) return status;
    image_->files.erase(name);
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<DiskImage> image_;
  bool mine_ = false;
};

}  // namespace openshell::model
