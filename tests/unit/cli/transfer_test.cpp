// File transfer without a sandbox: what is sent, where it lands, and what a hostile archive can not do.
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "cli/ssh/download_plan.hpp"
#include "cli/ssh/tar.hpp"
#include "cli/ssh/upload_plan.hpp"

namespace openshell::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TransferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "transfer-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    ::setenv("GIT_CEILING_DIRECTORIES", root_.parent_path().c_str(), 1);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream{root_ / path} << text;
  }
  std::string read(const fs::path& path) {
    std::ifstream file{root_ / path};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static std::vector<std::string> names(const UploadPlan& plan) {
    std::vector<std::string> out;
    for (const auto& entry : plan.entries) out.push_back(entry.name);
    return out;
  }
  /// Runs `writer` into one end of a pipe and `reader` on the other.
  template <class W, class R>
  absl::Status through(W writer, R reader) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    std::thread feed{[&] {
      writer(ends[1]);
      ::close(ends[1]);
    }};
    const auto status = reader(ends[0]);
    ::close(ends[0]);
    feed.join();
    return status;
  }
  /// An archive with these entries: name, type and content or link target.
  struct Raw {
    std::string name;
    mode_t type = AE_IFREG;
    std::string content;
    mode_t mode = 0644;
    bool hard = false;
  };
  static void write_raw(int fd, const std::vector<Raw>& entries) {
    auto* a = archive_write_new();
    archive_write_set_format_gnutar(a);
    archive_write_open_fd(a, fd);
    for (const auto& each : entries) {
      auto* entry = archive_entry_new();
      archive_entry_set_pathname(entry, each.name.c_str());
      archive_entry_set_filetype(entry, each.type);
      archive_entry_set_perm(entry, each.mode);
      if (each.hard) archive_entry_set_hardlink(entry, each.content.c_str());
      if (each.type == AE_IFLNK) archive_entry_set_symlink(entry, each.content.c_str());
      const bool data = each.type == AE_IFREG && !each.hard;
      archive_entry_set_size(entry, data ? static_cast<la_int64_t>(each.content.size()) : 0);
      archive_write_header(a, entry);
      if (data) archive_write_data(a, each.content.data(), each.content.size());
      archive_entry_free(entry);
    }
    archive_write_close(a);
    archive_write_free(a);
  }
  absl::Status extract(const std::vector<Raw>& entries) {
    fs::create_directories(root_ / "in");
    return through([&](int fd) { write_raw(fd, entries); }, [&](int fd) { return extract_tree(fd, root_ / "in"); });
  }
  bool git(const std::string& words) {
    return std::system(("git -C '" + root_.string() + "/tree' " + words + " >/dev/null 2>&1").c_str()) == 0;
  }

  fs::path root_;
};

// ---- upload

TEST_F(TransferTest, CX_18_ATreeSurvivesTheRoundTrip) {
  write("tree/b.txt", "b");
  write("tree/a/deep/" + std::string(150, 'n') + ".txt", "long");
  write("tree/\xc3\xa4 blank\n.txt", "odd");
  write("tree/--x", "dash");
  fs::create_directories(root_ / "tree/empty");
  fs::permissions(root_ / "tree/b.txt", fs::perms{0751});
  fs::create_symlink("../outside", root_ / "tree/dangling");
  fs::create_symlink("a", root_ / "tree/to-dir");
  auto plan = plan_upload((root_ / "tree").string(), "", true);
  ASSERT_TRUE(plan.ok()) << plan.status();
  fs::create_directories(root_ / "in");
  EXPECT_TRUE(
      through([&](int fd) { EXPECT_TRUE(write_tar(fd, plan->entries).ok()); }, [&](int fd) { return extract_tree(fd, root_ / "in"); })
          .ok());
  EXPECT_EQ(read("in/tree/b.txt"), "b");
  EXPECT_EQ(read("in/tree/a/deep/" + std::string(150, 'n') + ".txt"), "long");
  EXPECT_EQ(read("in/tree/\xc3\xa4 blank\n.txt"), "odd");
  EXPECT_EQ(read("in/tree/--x"), "dash");
  EXPECT_TRUE(fs::is_directory(root_ / "in/tree/empty"));
  EXPECT_EQ(fs::status(root_ / "in/tree/b.txt").permissions() & fs::perms{0700}, fs::perms{0700});
  EXPECT_EQ(fs::read_symlink(root_ / "in/tree/dangling"), "../outside");
  EXPECT_EQ(fs::read_symlink(root_ / "in/tree/to-dir"), "a");
}

TEST_F(TransferTest, B25_LinksAreSentAsLinks) {
  write("tree/file", "x");
  fs::create_directories(root_ / "tree/dir");
  fs::create_symlink("file", root_ / "tree/to-file");
  fs::create_symlink("dir", root_ / "tree/to-dir");
  fs::create_symlink("/nowhere", root_ / "tree/dangling");
  fs::create_symlink("/etc/passwd", root_ / "tree/absolute");
  ASSERT_TRUE(git("init -q"));
  for (const bool unfiltered : {false, true}) {
    auto plan = plan_upload((root_ / "tree").string(), "", unfiltered);
    ASSERT_TRUE(plan.ok()) << plan.status();
    fs::remove_all(root_ / "in");
    fs::create_directories(root_ / "in");
    ASSERT_TRUE(
        through([&](int fd) { EXPECT_TRUE(write_tar(fd, plan->entries).ok()); }, [&](int fd) { return extract_tree(fd, root_ / "in"); })
            .ok());
    for (const auto& [name, target] : std::vector<std::pair<std::string, std::string>>{
             {"to-file", "file"}, {"to-dir", "dir"}, {"dangling", "/nowhere"}, {"absolute", "/etc/passwd"}})
      EXPECT_EQ(fs::read_symlink(root_ / "in/tree" / name), target) << unfiltered;
  }
  // A link that is itself the source, also written with a slash behind it, also dangling.
  for (const char* name : {"to-dir", "to-dir/", "dangling"}) {
    auto plan = plan_upload((root_ / "tree" / name).string(), "", false);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->entries.size(), 1U);
    EXPECT_TRUE(fs::is_symlink(plan->entries[0].path));
  }
}

TEST_F(TransferTest, GitDecidesWhatIsSentAndItsFailureSendsNothing) {
  write("tree/kept", "1");
  write("tree/sub/kept", "2");
  write("tree/ignored.log", "3");
  write("tree/gone", "4");
  write("tree/.gitignore", "*.log\n");
  ASSERT_TRUE(git("init -q") && git("add -A"));
  fs::remove(root_ / "tree/gone");
  auto whole = plan_upload((root_ / "tree").string(), "/data", false);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(whole->filtered);
  EXPECT_EQ(whole->directory, "/data");
  EXPECT_THAT(names(*whole), ElementsAre("tree/.gitignore", "tree/kept", "tree/sub/kept"));
  auto part = plan_upload((root_ / "tree/sub").string(), "", false);
  ASSERT_TRUE(part.ok());
  EXPECT_THAT(names(*part), ElementsAre("sub/kept"));
  const auto nothing = plan_upload((root_ / "tree/ignored.log").string(), "", false);
  EXPECT_THAT(std::string{nothing.status().message()},
              ::testing::AllOf(HasSubstr("Git filtering selected no files"), HasSubstr("--no-git-ignore")));
  ::setenv("GIT_DIR", "/nowhere", 1);
  EXPECT_TRUE(plan_upload((root_ / "tree").string(), "", false).ok()) << "variables that point elsewhere are taken out";
  ::unsetenv("GIT_DIR");
  fs::remove_all(root_ / "tree/.git/index");
  write("tree/.git/index", "broken");
  EXPECT_THAT(std::string{plan_upload((root_ / "tree").string(), "", false).status().message()}, HasSubstr("Git filtering failed for"));
}

TEST_F(TransferTest, WhereAFileLands) {
  write("tree/a.txt", "x");
  const auto from = (root_ / "tree/a.txt").string();
  const auto plan = [&](const std::string& destination) { return *plan_upload(from, destination, false); };
  EXPECT_EQ(plan("").directory, ".");
  EXPECT_EQ(plan("dir/").directory, "dir/");
  EXPECT_EQ(plan("/name").directory, "/name") << "below the root a destination is a directory";
  EXPECT_EQ(plan("/sandbox/b.txt").file_target, "/sandbox/b.txt");
  EXPECT_THAT(plan("").warning, HasSubstr("outside a Git work tree"));
  EXPECT_EQ(split_target("/sandbox/b.txt").directory, "/sandbox");
  EXPECT_EQ(split_target("/sandbox/b.txt").name, "b.txt");
  EXPECT_EQ(split_target("b.txt").directory, ".");
  EXPECT_EQ(plan_upload((root_ / "none").string(), "", false).status().message(),
            "local path does not exist: " + (root_ / "none").string());
}

TEST_F(TransferTest, TheExtractCommandTakesNoNameForAnOptionAndSeesAChangedType) {
  EXPECT_EQ(extract_command(".", std::nullopt, false), "mkdir -p -- . && cat | tar xf - -C .");
  EXPECT_EQ(extract_command("a b", std::nullopt, false), "mkdir -p -- 'a b' && cat | tar xf - -C 'a b'");
  EXPECT_EQ(extract_command("-x", std::nullopt, false), "mkdir -p -- ./-x && cat | tar xf - -C ./-x");
  EXPECT_EQ(extract_command("/s", "/s/b", false), "[ ! -d /s/b ] || exit 73; mkdir -p -- /s && cat | tar xf - -C /s");
}

TEST_F(TransferTest, WhatIsNoFileCannotBeSent) {
  fs::create_directories(root_ / "tree");
  ASSERT_EQ(::mkfifo((root_ / "tree/pipe").c_str(), 0600), 0);
  const auto plan = plan_upload((root_ / "tree").string(), "", true);
  EXPECT_EQ(plan.status().message(), "unsupported file type for upload: " + (root_ / "tree/pipe").string());
}

TEST_F(TransferTest, ADirectoryNamedWithADotIsSentFlat) {
  write("tree/a", "x");
  auto plan = plan_upload((root_ / "tree/.").string(), "", true);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(names(*plan), ElementsAre("a"));
}

// ---- download

TEST_F(TransferTest, B27_NothingOutsideTheWorkspaceIsDownloaded) {
  const auto check = [](const std::string& path, const std::string& answer, int code = 0) {
    auto source = check_source(path, answer, code);
    return source.ok() ? *source : std::string{source.status().message()};
  };
  EXPECT_EQ(check("a.txt", "/work\n/work/a.txt\n"), "/work/a.txt");
  EXPECT_EQ(check("/work", "/work\n/work\n"), "/work");
  EXPECT_EQ(check("/etc/hosts", "/work\n/etc/hosts\n"), "sandbox source path '/etc/hosts' is outside the sandbox workspace (/work)");
  EXPECT_EQ(check("/work/../etc/hosts", "/work\n/etc/hosts\n"),
            "sandbox source path '/work/../etc/hosts' is outside the sandbox workspace (/work)");
  EXPECT_EQ(check("/workspace2/x", "/work\n/workspace2/x\n"),
            "sandbox source path '/workspace2/x' is outside the sandbox workspace (/work)");
  EXPECT_EQ(check("link", "/work\n/etc\n"), "sandbox source path 'link' resolves to '/etc', outside the sandbox workspace (/work)");
  EXPECT_EQ(check("none", "/work\n", 1), "sandbox source path does not exist: none");
  for (const char* lie : {"", "\n", "/\n/etc/hosts\n", "work\n/work/a\n", "/work/\n/work/a\n", "/work/../x\n/x\n"})
    EXPECT_THAT(check("a", lie), HasSubstr("workspace is not an absolute, canonical path")) << lie;
  EXPECT_THAT(check("a", "/work\n/work/../etc/a\n"), HasSubstr("outside the sandbox workspace")) << "a sandbox that lies";
}

TEST_F(TransferTest, B27_OddNamesAreOperandsAndMissingOnesAreErrors) {
  EXPECT_EQ(type_command("--checkpoint=1"),
            "if [ -d './--checkpoint=1' ]; then printf dir; elif [ -e './--checkpoint=1' ]; then printf file; else printf missing; fi");
  EXPECT_EQ(archive_command("/work/--checkpoint=1", false), "tar cf - -C /work -- '--checkpoint=1'");
  EXPECT_EQ(archive_command("/work/d", true), "tar cf - -C /work/d .");
  EXPECT_EQ(check_destination("x", root_.string(), "/work/x", "missing").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TransferTest, WhereADownloadLands) {
  write("there/x/keep", "");
  write("plain", "old");
  const auto to = [&](const std::string& destination, const std::string& type) {
    auto target = check_destination("p", destination, "/work/x", type);
    return target.ok() ? target->path.string() : std::string{target.status().message()};
  };
  const auto at = [&](const char* name) { return (root_ / name).string(); };
  EXPECT_EQ(to(at("new"), "file"), at("new"));
  EXPECT_EQ(to(at("fresh/"), "file"), at("fresh/x"));
  EXPECT_EQ(to(at("there"), "file"), "cannot overwrite directory '" + at("there/x") + "' with downloaded file");
  EXPECT_EQ(to(at("plain"), "dir"), "cannot extract directory 'p' over non-directory destination '" + at("plain") + "'");
  EXPECT_EQ(to(at("deep/er"), "dir"), at("deep/er"));
  EXPECT_TRUE(fs::is_directory(root_ / "deep/er"));
}

TEST_F(TransferTest, AFileIsReplacedAsAWholeOrNotAtAll) {
  write("target", "old");
  const auto one = [&](const std::vector<Raw>& entries, std::size_t cut = std::string::npos) {
    return through(
        [&](int fd) {
          const auto whole = root_ / "whole.tar";
          const int file = ::open(whole.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
          write_raw(file, entries);
          ::close(file);
          auto bytes = read("whole.tar").substr(0, cut);
          (void)!::write(fd, bytes.data(), bytes.size());
        },
        [&](int fd) { return extract_file(fd, root_ / "target"); });
  };
  EXPECT_FALSE(one({{"x", AE_IFREG, std::string(30'000, 'n')}}, 10'000).ok()) << "the stream broke off";
  EXPECT_EQ(read("target"), "old");
  EXPECT_FALSE(one({{"x", AE_IFLNK, "/etc/passwd"}}).ok());
  EXPECT_FALSE(one({}).ok());
  EXPECT_EQ(read("target"), "old");
  EXPECT_TRUE(one({{"x", AE_IFREG, "new", 04755}}).ok());
  EXPECT_EQ(read("target"), "new");
  EXPECT_EQ(fs::status(root_ / "target").permissions(), fs::perms{0755}) << "no set-id bit";
  for (const auto& each : fs::directory_iterator{root_})
    EXPECT_THAT(each.path().filename().string(), ::testing::Not(HasSubstr(".openshell-download")));
}

TEST_F(TransferTest, AHostileArchiveStaysInItsDirectory) {
  write("victim", "safe");
  EXPECT_FALSE(extract({{"../victim", AE_IFREG, "bad"}}).ok());
  EXPECT_FALSE(extract({{"/tmp/openshell-victim", AE_IFREG, "bad"}}).ok());
  EXPECT_FALSE(extract({{"a/../../victim", AE_IFREG, "bad"}}).ok());
  (void)extract({{"out", AE_IFLNK, ".."}, {"out/victim", AE_IFREG, "bad"}});
  EXPECT_FALSE(fs::is_symlink(root_ / "in/out")) << "a link of its own is no way out: a directory takes its place";
  EXPECT_FALSE(extract({{"hard", AE_IFREG, "../victim", 0644, true}}).ok()) << "by a hard link";
  EXPECT_EQ(read("victim"), "safe");
  EXPECT_FALSE(fs::exists("/tmp/openshell-victim"));
  EXPECT_TRUE(extract({{"dev", AE_IFBLK, ""}, {"fifo", AE_IFIFO, ""}, {"fine", AE_IFREG, "ok", 06755}}).ok());
  EXPECT_FALSE(fs::exists(root_ / "in/dev"));
  EXPECT_FALSE(fs::exists(root_ / "in/fifo"));
  EXPECT_EQ(read("in/fine"), "ok");
  EXPECT_EQ(fs::status(root_ / "in/fine").permissions() & fs::perms{07000}, fs::perms::none);
}

TEST_F(TransferTest, ExtractionGoesBackToWhereItWas) {
  const auto before = fs::current_path();
  EXPECT_TRUE(extract({{"a", AE_IFREG, "x"}}).ok());
  EXPECT_FALSE(extract({{"../a", AE_IFREG, "x"}}).ok());
  EXPECT_EQ(fs::current_path(), before);
}

}  // namespace
}  // namespace openshell::cli
