#include "providers/credential_store.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "observability/text.hpp"

namespace openshell::providers {
namespace {

class CredentialStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(directory_.data()), nullptr);
    store_ = *storage::open_store("sqlite::memory:");
    credentials_ = open();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string key_path() const { return directory_ + "/keys/kek.bin"; }
  std::unique_ptr<CredentialStore> open() const {
    auto opened = CredentialStore::from_file(key_path());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  CredentialHandle stored(const std::string& value) {
    CredentialHandle handle;
    const auto status = store_->write_and_wait([&](storage::Transaction& tx) {
      auto made = credentials_->store(tx, owner_, Secret{value});
      if (made.ok()) handle = *made;
      return made.status();
    });
    EXPECT_TRUE(status.ok()) << status;
    return handle;
  }
  absl::StatusOr<std::string> resolved(const CredentialStore& credentials, const CredentialOwner& owner, const CredentialHandle& handle) {
    std::string value;
    const auto status = store_->read_and_wait([&](storage::Transaction& tx) {
      auto secret = credentials.resolve(tx, owner, handle);
      if (secret.ok()) value = secret->reveal();
      return secret.status();
    });
    if (!status.ok()) return status;
    return value;
  }

  std::string directory_ = "/tmp/openshell-credentials-XXXXXX";
  CredentialOwner owner_{"id-1", "api-server", "API_TOKEN"};
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<CredentialStore> credentials_;
};

TEST_F(CredentialStoreTest, GivesBackWhatWasStoredAndKeepsNoClearText) {
  const auto handle = stored("correct horse battery staple");
  EXPECT_EQ(*resolved(*credentials_, owner_, handle), "correct horse battery staple");
  EXPECT_EQ(*resolved(*open(), owner_, handle), "correct horse battery staple") << "the key on disk is the same key";
  (void)store_->read_and_wait([&](storage::Transaction& tx) {
    auto row = tx.get(storage::types::kEncryptedCredential, handle.handle.substr(3));
    EXPECT_TRUE(row.ok() && *row);
    EXPECT_EQ((*row)->payload.find("horse"), std::string::npos);
    return absl::OkStatus();
  });
  EXPECT_EQ(*resolved(*credentials_, owner_, stored("")), "");
}

TEST_F(CredentialStoreTest, TheKeyFileIsForItsOwnerOnly) {
  struct stat info {};
  ASSERT_EQ(::stat(key_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(info.st_size, 32);
  ASSERT_EQ(::stat((directory_ + "/keys").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
}

TEST_F(CredentialStoreTest, AnotherOwnerIsRefused) {
  const auto handle = stored("x");
  for (const auto& other : {CredentialOwner{"id-2", "api-server", "API_TOKEN"}, CredentialOwner{"id-1", "other", "API_TOKEN"},
                            CredentialOwner{"id-1", "api-server", "OTHER"}}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(resolved(*credentials_, other, handle).status()));
  }
}

TEST_F(CredentialStoreTest, AnotherKeyIsRefusedAndSaysSo) {
  const auto handle = stored("x");
  std::ofstream{key_path(), std::ios::trunc} << std::string(32, 'k');
  EXPECT_EQ(resolved(*open(), owner_, handle).status().message(),
            "default credential storage object was encrypted with a different key-encryption key");
}

TEST_F(CredentialStoreTest, EveryChangedByteOfTheEnvelopeIsSeen) {
  const auto handle = stored("value");
  std::string payload;
  (void)store_->read_and_wait([&](storage::Transaction& tx) {
    payload = (*tx.get(storage::types::kEncryptedCredential, handle.handle.substr(3)))->payload;
    return absl::OkStatus();
  });
  for (std::size_t i = 0; i < payload.size(); i += 3) {
    std::string damaged = payload;
    damaged[i] = damaged[i] == 'A' ? 'B' : 'A';
    (void)store_->write_and_wait([&](storage::Transaction& tx) {
      auto row = **tx.get(storage::types::kEncryptedCredential, handle.handle.substr(3));
      row.payload = damaged;
      return tx.update(row).status();
    });
    const auto value = resolved(*credentials_, owner_, handle);
    // The id inside the envelope is for people; what is authenticated is the row's.
    if (!value.ok()) continue;
    EXPECT_EQ(*value, "value") << i;
    EXPECT_LT(i, payload.find("provider_id")) << damaged;
  }
}

TEST_F(CredentialStoreTest, GoneIsNotFoundAndErasingTwiceIsFine) {
  const auto handle = stored("x");
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(store_->write_and_wait([&](storage::Transaction& tx) { return credentials_->erase(tx, handle); }).ok());
  EXPECT_TRUE(absl::IsNotFound(resolved(*credentials_, owner_, handle).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(resolved(*credentials_, owner_, {"vault", "v1:x", {}}).status()));
}

TEST_F(CredentialStoreTest, AKeyOfAnotherLengthIsRefused) {
  std::ofstream{key_path(), std::ios::trunc} << std::string(33, 'k');
  EXPECT_TRUE(absl::IsFailedPrecondition(CredentialStore::from_file(key_path()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(CredentialStore::from_file("relative").status()));
  ::setenv("OPENSHELL_TEST_KEK", "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=", 1);
  EXPECT_TRUE(CredentialStore::from_environment("OPENSHELL_TEST_KEK").ok());
  ::setenv("OPENSHELL_TEST_KEK", "a2tr", 1);
  EXPECT_FALSE(CredentialStore::from_environment("OPENSHELL_TEST_KEK").ok());
}

}  // namespace
}  // namespace openshell::providers
